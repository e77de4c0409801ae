/* A person's own verdict: segments marked right or wrong, labels added, moved, named and deleted; each step undone. */
const SHORTEST = 0.05; /* seconds that a label lasts at least */
const ADDED_SECONDS = 2; /* that a new label lasts */
const limit = timeline.duration || duration; /* a label that ends later would be an error in a label file */
const past = kept ? [given] : [], future = []; /* what truth and wrongs were */
let unsaved = false, editing = false;

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
const dayText = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
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
  const entry = { truth: plain(truth), wrongs: plain(wrongs), labels: labelled(), rest: $("take-rest").checked, at: Date.now() };
  unsaved = !writeKept(keptName(location.href, report.given), past.length ? entry : null);
  $("kept-state").textContent = unsaved ? "Not kept: download the labels before you close this page" : past.length ? "Kept in this browser" : "";
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
  if (addClass(next.label)) {
    addLane(names.length - 1);
    addBox(names.length - 1);
    widenNames();
  }
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
  showChosen();
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

function showReview() {
  const { wrong, unmarked } = verdict, made = (truth || []).filter((label) => label.made).length;
  const words = [countText((truth || []).length, "label")];
  if (wasLabelled && made) words.push(numberText(made) + " of them new or changed");
  if (wrong) words.push(countText(wrong, "segment") + " marked wrong");
  if (!wasLabelled && unmarked) words.push(numberText(unmarked) + " not marked yet");
  $("review-state").textContent = words.join(" · ");
  $("rest").hidden = wasLabelled || !unmarked;
  $("rest-count").textContent = countText(unmarked, "segment");
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  $("class-names").replaceChildren(...names.filter((name) => !UNDECIDABLE.includes(name)).map((name) => option(name)));
  for (const id of ["error-before", "error-after"]) $(id).disabled = !errorsShown().length && !report.index;
  $("errors").hidden = !truth && !wrongs.length;
  showChosen();
}
/* The fields of what is chosen, and the handles of its edges. */
function showChosen() {
  const entry = entries[chosen], from = entry && (labelOf(entry) || entry);
  for (const id of ["mark-right", "mark-wrong"]) $(id).setAttribute("aria-pressed", String(Boolean(entry) && id === "mark-" + markOf(entry)));
  $("editor").hidden = !editing || !entry;
  if (!entry) return placeEdges();
  $("delete").disabled = !labelOf(entry);
  for (const [id, value] of [["label-name", from.label], ["label-start", from.start], ["label-end", from.end]]) {
    if (document.activeElement !== $(id)) $(id).value = typeof value === "number" ? hundredths(value) : value;
  }
  placeEdges();
}
function placeEdges() {
  const entry = entries[chosen], from = entry && (labelOf(entry) || entry);
  const lane = from && lanes.find((other) => names[other.index] === from.label), box = $("surface");
  for (const name of ["start", "end"]) {
    const handle = $("edge-" + name), x = from ? (from[name] - view[0]) / (view[1] - view[0]) * box.clientWidth : -1;
    handle.hidden = !lane || lane.row.hidden || x < 0 || x > box.clientWidth;
    if (handle.hidden) continue;
    handle.style.transform = "translate(" + x + "px," + lane.row.offsetTop + "px)";
    handle.style.height = lane.row.offsetHeight + "px";
  }
}
function dragEdge(name) {
  const handle = $("edge-" + name);
  let held = null, moves = false;
  handle.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.stopPropagation();
    event.preventDefault();
    handle.setPointerCapture(event.pointerId);
    [held, moves] = [entries[chosen], false];
  });
  handle.addEventListener("pointermove", (event) => {
    event.stopPropagation();
    if (!held || !entries[chosen]) return;
    const time = timeAt($("surface"), event.clientX, view);
    changeLabel(entries[chosen], { [name]: time }, moves);
    moves = true;
    seek(time);
  });
  for (const kind of ["pointerup", "pointercancel"]) handle.addEventListener(kind, (event) => { event.stopPropagation(); held = null; });
}

/* Everything that is a label now; without a label file, on wish the segments that nobody has marked too. */
function labelled() {
  const rest = wasLabelled || !$("take-rest").checked ? [] : segments.filter((segment) => passes(segment) && !segment.match && !isWrong(segment));
  const kept = [...(truth || []), ...rest.map(pieceOf)].sort(byStart).map(({ label, start, end }) => ({ label, start, end }));
  return { id: report.id, subset: $("subset").value, duration: timeline.duration ?? duration, segments: kept };
}
const fileName = () => lastPart(report.id);
function buildReview() {
  for (const [id, action] of [
    ["mark-right", () => act(markRight)], ["mark-wrong", () => act(markWrong)], ["add", addLabel], ["edit", edit], ["undo", undo], ["redo", redo],
    ["delete", () => act(remove)], ["start-here", () => act((entry) => changeLabel(entry, { start: now }))],
    ["end-here", () => act((entry) => changeLabel(entry, { end: now }))], ["close-editor", () => { editing = false; showChosen(); $("rows").focus(); }],
    ["labels-json", () => download(fileName() + ".labels.json", toActivityNet(names, [labelled()]), "application/json")],
    ["labels-csv", () => download(fileName() + ".labels.csv", toCsv([labelled()]), "text/csv")],
    ["segments-csv", () => download(fileName() + ".csv", toCsv([{ id: report.id, duration: timeline.duration ?? duration, segments: segments.filter(passes) }]), "text/csv")],
    ["segments-vtt", () => download(fileName() + ".vtt", toVtt(segments.filter(passes)), "text/vtt")],
  ]) $(id).addEventListener("click", action);
  $("label-name").addEventListener("change", () => {
    const name = $("label-name").value.trim();
    if (name && !UNDECIDABLE.includes(name)) act((entry) => changeLabel(entry, { label: name }));
    else showChosen();
  });
  for (const name of ["start", "end"]) {
    $("label-" + name).addEventListener("change", (event) => {
      const seconds = event.target.valueAsNumber;
      if (Number.isFinite(seconds)) act((entry) => changeLabel(entry, { [name]: seconds }));
      const entry = entries[chosen];
      event.target.value = entry ? hundredths((labelOf(entry) || entry)[name]) : "";
    });
    dragEdge(name);
  }
  $("editor").addEventListener("keydown", (event) => {
    if (event.key === "Escape") $("close-editor").click();
  });
  if (report.subset) $("subset").value = report.subset;
  if (kept) {
    $("subset").value = kept.labels.subset;
    $("take-rest").checked = kept.rest;
    $("kept-state").textContent = "As you left it, " + dayText.format(kept.at);
  }
  for (const id of ["subset", "take-rest"]) $(id).addEventListener("change", () => { if (past.length) keepSoon(); });
  addEventListener("pagehide", keep);
  addEventListener("beforeunload", (event) => {
    keep();
    if (unsaved) event.preventDefault();
  });
}
