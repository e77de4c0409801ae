/* A person's own verdict: segments marked right or wrong, labels added, moved, named and deleted; each step undone. */
const dayText = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const SHORTEST = 0.05; /* seconds that a label lasts at least */
const ADDED_SECONDS = 2; /* that a new label lasts */
const limit = timeline.duration || duration; /* a label that ends later would be an error in a label file */
const past = kept ? [given] : [], future = []; /* what truth and wrongs were */
let unsaved = false, editing = false, keptText = kept ? "As you left it, " + dayText.format(kept.at) : "";
let takeRest = kept?.rest ?? true, subset = kept?.labels.subset ?? report.subset ?? "training"; /* what is downloaded */

function change(next, goesOn = false) {
  if (!goesOn) past.push({ truth, wrongs });
  future.length = 0;
  ({ truth, wrongs } = { truth, wrongs, ...next });
  refresh();
  keepSoon();
}
function turnBack(from, to) {
  if (!from.length) return;
  to.push({ truth, wrongs });
  ({ truth, wrongs } = from.pop());
  refresh();
  keepSoon();
}

/* The browser keeps what is corrected, a moment after the last change: an edge that is dragged changes often. */
let keeping = 0;
function keepSoon() {
  clearTimeout(keeping);
  unsaved = true;
  keeping = setTimeout(keep, 150);
}
function keep() {
  clearTimeout(keeping);
  if (!unsaved) return;
  const plain = (pieces) => pieces && pieces.map(({ label, start, end, made }) => ({ label, start, end, made }));
  const entry = { truth: plain(truth), wrongs: plain(wrongs), labels: labelled(), rest: takeRest, at: Date.now() };
  unsaved = !writeKept(keptName(location.href, report.given), past.length ? entry : null);
  keptText = unsaved ? "Not kept: download the labels before you close this page" : past.length ? "Kept in this browser" : "";
  draw();
}
const undo = () => turnBack(past, future);
const redo = () => turnBack(future, past);

const labelOf = ({ item, lost }) => (lost ? item : item.match);
function markOf(entry) {
  if (entry.lost) return null;
  if (labelOf(entry)) return "right";
  return isWrong(entry.item) ? "wrong" : null;
}
const without = (label) => (truth || []).filter((other) => other !== label);
const clearedOf = (piece) => wrongs.filter((wrong) => wrong.label !== piece.label || overlap(wrong, piece) < LEAST_IOU);
const pieceOf = ({ label, start, end }) => ({ label, start, end: Math.min(end, limit) });

/* A segment becomes a label; a second time takes back a label that was made of one. */
function markRight(entry) {
  const label = labelOf(entry);
  if (!label) change({ truth: [...(truth || []), { ...pieceOf(entry), made: true }].sort(byStart), wrongs: clearedOf(entry) });
  else if (label.made && !entry.lost) change({ truth: without(label) });
}
/* A segment is a false alarm, a label is none; a second time takes back the mark on a segment. */
function markWrong(entry) {
  const label = labelOf(entry);
  if (entry.lost) change({ truth: without(label) });
  else if (!label && isWrong(entry.item)) change({ wrongs: clearedOf(entry) });
  else change({ truth: label ? without(label) : truth || [], wrongs: [...clearedOf(entry), pieceOf(entry)] });
}
function addLabel() {
  const before = entries[chosen], best = ranked(chunkAt(now), names.length).find(({ index }) => !UNDECIDABLE.includes(names[index]));
  const name = before ? before.label : best ? names[best.index] : names.find((other) => !UNDECIDABLE.includes(other)) ?? "action";
  const start = hundredths(Math.max(0, Math.min(now, limit - SHORTEST))), end = hundredths(start + ADDED_SECONDS);
  const label = { ...pieceOf({ label: name, start, end }), made: true };
  filter.hidden.delete(classOf.get(name));
  change({ truth: [...(truth || []), label].sort(byStart), wrongs: clearedOf(label) });
  chooseLabel(label);
  edit();
}
/* Moves or names the label of an entry; a segment without one gets it. */
function changeLabel(entry, changes, goesOn = false) {
  const old = labelOf(entry), from = old || entry, next = { ...pieceOf(from), made: true, ...changes };
  if (changes.start !== undefined) next.start = Math.max(0, Math.min(hundredths(changes.start), next.end - SHORTEST));
  if (changes.end !== undefined) next.end = Math.min(limit, Math.max(hundredths(changes.end), next.start + SHORTEST));
  if (addClass(next.label)) widenNames(names);
  change({ truth: [...without(old), next].sort(byStart), wrongs: clearedOf(next) }, goesOn);
  chooseLabel(next);
}
function chooseLabel(label) {
  const index = entries.findIndex((entry) => labelOf(entry) === label);
  if (index >= 0) choose(index);
}

/* Which entry buttons and keys mean: the chosen one, else the one at the cursor. */
const meant = () => entries[chosen] ?? entries.findLast(({ start, end }) => start <= now + 1e-6 && now < end - 1e-6);
function act(mark) {
  const entry = meant();
  if (!entry) return;
  if (chosen < 0) choose(entries.indexOf(entry));
  mark(entry);
}
function edit() {
  if (chosen < 0 && meant()) choose(entries.indexOf(meant()));
  if (chosen < 0) return;
  editing = true;
  draw();
  $("label-name").focus();
  $("label-name").select();
}
const remove = (entry) => { if (labelOf(entry)) change({ truth: without(labelOf(entry)) }); };
function reviewKey(event) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range" && event.target.type !== "checkbox";
  if (typing || event.altKey) return false;
  if (event.ctrlKey || event.metaKey) {
    if (event.key.toLowerCase() !== "z" && event.key !== "y") return false;
    if (event.key === "y" || event.shiftKey) redo(); else undo();
    return true;
  }
  const edge = (name, seconds) => act((entry) => changeLabel(entry, { [name]: seconds ?? now }));
  const actions = {
    r: () => act(markRight), w: () => act(markWrong), m: addLabel, e: edit, Delete: () => act(remove),
    "[": () => edge("start"), "]": () => edge("end"),
  };
  if (!Object.hasOwn(actions, event.key)) return false;
  actions[event.key]();
  return true;
}

const unlessTyping = (id, value) => (document.activeElement?.id === id ? undefined : value);
function Review() {
  const { wrong, unmarked } = verdict, made = (truth || []).filter((label) => label.made).length, entry = entries[chosen];
  const words = [countText((truth || []).length, "label")];
  if (wasLabelled && made) words.push(numberText(made) + " of them new or changed");
  if (wrong) words.push(countText(wrong, "segment") + " marked wrong");
  if (!wasLabelled && unmarked) words.push(numberText(unmarked) + " not marked yet");
  const mark = (kind, look, title, text, act) => html`<${Button} id=${"mark-" + kind} class=${look} title=${title} aria-pressed=${Boolean(entry) && markOf(entry) === kind} onClick=${act}>${text}<//>`;
  return html`<div id="review" role="group" aria-label="Correct the segments">
    <div class="buttons">
      ${mark("right", "yes", "This happens (r)", "Right", () => act(markRight))}${mark("wrong", "no", "This does not happen (w)", "Wrong", () => act(markWrong))}
      <${Button} id="add" title="Add what was missed, at the cursor (m)" onClick=${addLabel}>Add missed<//>
      <${Button} id="edit" title="Name it and move its edges (e)" onClick=${edit}>Edit<//>
      <${Button} id="undo" title="Undo (ctrl Z)" disabled=${!past.length} onClick=${undo}>Undo<//><${Button} id="redo" title="Redo (ctrl shift Z)" disabled=${!future.length} onClick=${redo}>Redo<//>
    </div>
    ${editing && entry && html`<${Editor} entry=${entry} />`}
    <div class="labels">
      <span id="review-state" role="status">${words.join(" · ")}</span><span id="kept-state" role="status">${keptText}</span>
      <label id="rest" hidden=${wasLabelled || !unmarked}><input type="checkbox" id="take-rest" checked=${takeRest} onChange=${({ target }) => { takeRest = target.checked; keepChoice(); }} /> with the <span>${countText(unmarked, "segment")}</span> not marked</label>
      <span><label>Download labels for <select id="subset" aria-label="Subset of the labels" value=${subset} onChange=${({ target }) => { subset = target.value; keepChoice(); }}>${options([["training"], ["validation"], ["testing"]])}</select></label>
        <${Button} id="labels-json" title="Download labels as ActivityNet JSON, for --labels" onClick=${() => download(fileName() + ".labels.json", toActivityNet(names, [labelled()]), "application/json")}>JSON<//>
        <${Button} id="labels-csv" title="Download labels as CSV" onClick=${() => download(fileName() + ".labels.csv", toCsv([labelled()]), "text/csv")}>CSV<//></span>
    </div>
  </div>`;
}
/* The fields of the label of an entry; what is refused does not stay in them. */
function Editor({ entry }) {
  const from = labelOf(entry) || entry, shownNow = (name) => hundredths((labelOf(entries[chosen]) || entries[chosen])[name]);
  const rename = ({ target }) => {
    const name = target.value.trim();
    if (name && !UNDECIDABLE.includes(name)) act((one) => changeLabel(one, { label: name }));
  };
  const move = (name) => ({ target }) => {
    if (Number.isFinite(target.valueAsNumber)) act((one) => changeLabel(one, { [name]: target.valueAsNumber }));
    target.value = entries[chosen] ? shownNow(name) : "";
  };
  const edge = (name, text, key) => html`<span><label>${text} <input type="number" id=${"label-" + name} min="0" step="0.05" value=${unlessTyping("label-" + name, hundredths(from[name]))} onChange=${move(name)} /> s</label>${" "}
    <${Button} id=${name + "-here"} title=${text + " at the cursor (" + key + ")"} onClick=${() => act((one) => changeLabel(one, { [name]: now }))}>at cursor<//></span>`;
  return html`<div id="editor" role="group" aria-label="Label" onKeyDown=${({ key: pressed }) => { if (pressed === "Escape") closeEditor(); }}>
    <label>Action <input type="text" id="label-name" list="class-names" autocomplete="off" value=${unlessTyping("label-name", from.label)} onChange=${rename} /></label>
    <datalist id="class-names">${options(names.filter((name) => !UNDECIDABLE.includes(name)).map((name) => [name]))}</datalist>
    ${edge("start", "Start", "[")}${edge("end", "End", "]")}
    <span><${Button} id="delete" title="Delete the label (delete)" disabled=${!labelOf(entry)} onClick=${() => act(remove)}>Delete<//> <${Button} id="close-editor" onClick=${closeEditor}>Done<//></span>
  </div>`;
}
function closeEditor() {
  editing = false;
  draw();
  $("rows").focus();
}
const keepChoice = () => { draw(); if (past.length) keepSoon(); };

/* The handles of the edges of what is chosen. */
function placeEdges() {
  const entry = entries[chosen], from = entry && (labelOf(entry) || entry), row = from && $("lanes").querySelector('.lane[data-index="' + names.indexOf(from.label) + '"]');
  for (const name of ["start", "end"]) placeHandle($("edge-" + name), row ? from[name] : null, row?.offsetTop, row?.offsetHeight);
}
let held = null, moves = false; /* the entry whose edge is dragged, and whether it has moved */
function Edge({ name }) {
  const press = (event) => {
    event.stopPropagation();
    if (event.button) return;
    event.preventDefault();
    event.target.setPointerCapture(event.pointerId);
    [held, moves] = [entries[chosen], false];
  };
  const drag = (event) => {
    event.stopPropagation();
    if (!held || !entries[chosen]) return;
    const time = timeAt($("surface"), event.clientX, view);
    changeLabel(entries[chosen], { [name]: time }, moves);
    moves = true;
    seek(time);
  };
  const release = (event) => { event.stopPropagation(); held = null; };
  return html`<div class="edge" id=${"edge-" + name} aria-hidden="true" onPointerDown=${press} onPointerMove=${drag} onPointerUp=${release} onPointerCancel=${release} />`;
}

/* Everything that is a label now; without a label file, on wish the segments that nobody has marked too. */
function labelled() {
  const rest = wasLabelled || !takeRest ? [] : segments.filter((segment) => passes(segment) && !segment.match && !isWrong(segment));
  const kept = [...(truth || []), ...rest.map(pieceOf)].sort(byStart).map(({ label, start, end }) => ({ label, start, end }));
  return { id: report.id, subset, duration: limit, segments: kept };
}
const fileName = () => lastPart(report.id);
addEventListener("pagehide", keep);
addEventListener("beforeunload", (event) => {
  keep();
  if (unsaved) event.preventDefault();
});
