/* A lane for each action and one for "nothing happens": names that start and stop, labels as bars, the whole video above. */
let names = [];
const LEAST_BAR = 5; /* pixels */

let lanes = []; /* of each action: its id, name and key, labels as bars, proposals */
let gaps = [], stamp = 0; /* counts what all lanes have to be drawn again for */

function buildLanes() {
  const actions = [...actionsInOrder().map(([id, { name, key }]) => ({ id, name, key })), { id: nothing, name: nameOf(nothing), key: "n" }];
  names = actions.map(({ name }) => name);
  report.colours = Object.fromEntries(actions.filter(({ id }) => id !== nothing).map(({ name }, at) => [name, report.palette[at % report.palette.length]]));
  lanes = actions.map((action, index) => ({ ...action, index, bars: [], ends: [], proposals: [], open: null }));
  widenNames(names);
}
const LaneRow = ({ lane: { id, name, key, open }, lane }) => html`<${Lane} stamp=${stamp} content=${() => ({ colour: colourOf(name), paint: (pen, box) => paintLane(pen, box, lane) })}>
  <${Button} title=${name + (key ? " starts and stops by " + key : "")} style=${spotStyle(name)} aria-pressed=${Boolean(open)} onClick=${({ currentTarget }) => pressAction(id, currentTarget)}>
    <span class=${id === nothing ? "spot hollow" : "spot"} /><span class="cut">${name}</span><output>${open && "from " + clockText(open.start, 1)}</output>${key && html`<kbd>${key}</kbd>`}<//><//>`;
/* The bars of each lane: labels of one action that overlap stand below each other. */
function fillLanes() {
  const byAction = new Map(lanes.map((lane) => [lane.id, lane]));
  for (const lane of lanes) Object.assign(lane, { bars: [], ends: [] }); /* ends: of the last bar of each level */
  for (const [key, label] of inOrder()) {
    const lane = byAction.get(label.action), free = lane?.ends.findIndex((end) => end <= label.start + 1e-6);
    if (!lane) continue;
    const level = free < 0 ? lane.ends.length : free;
    lane.ends[level] = label.end ?? Infinity;
    lane.bars.push({ key, label, level });
  }
  for (const lane of lanes) lane.open = lane.bars.find(({ label }) => label.end === null)?.label ?? null;
  fillProposals();
  gaps = unknownStretches();
  stamp++;
  overview = null;
}
const endOf = (label) => label.end ?? Math.max(now, label.start);
/* A bar while it is dragged is where the pointer has it. */
const shownSpan = ({ key, label }) => (dragged?.key === key ? [dragged.start, dragged.end] : [label.start, endOf(label)]);
function placeOf(lane, level, height, ratio) {
  const deep = Math.max(1, lane.ends.length), space = 4 * ratio, each = (height - 2 * space) / deep;
  return [space + level * each, Math.max(2 * ratio, each - (deep > 1 ? ratio : 0))];
}
function paintLane(pen, { toX, height, ratio }, lane) {
  hatch(pen, gaps, toX, height, ratio, theme.line, 7);
  drawProposals(pen, lane, toX, height, ratio);
  const colour = colourOf(names[lane.index]), hollow = lane.id === nothing, plain = new Path2D();
  const boxOf = (bar) => {
    const [start, end] = shownSpan(bar), [y, tall] = placeOf(lane, bar.level, height, ratio), left = toX(start);
    return [left, y, Math.max(LEAST_BAR * ratio, toX(end) - left), tall];
  };
  const seen = lane.bars.filter((bar) => { const [start, end] = shownSpan(bar); return end >= view[0] && start <= view[1]; });
  const isMarked = ({ key, label }) => key === chosen || label.end === null;
  pen.fillStyle = hollow ? theme.well : colour;
  pen.strokeStyle = colour;
  pen.lineWidth = ratio;
  for (const bar of seen) if (!isMarked(bar)) addBar(plain, boxOf(bar), ratio);
  pen.fill(plain); /* all at once: thousands of bars one by one make each key wait */
  if (hollow) pen.stroke(plain);
  for (const bar of seen.filter(isMarked)) {
    const path = new Path2D();
    addBar(path, boxOf(bar), ratio);
    pen.globalAlpha = bar.label.end === null ? 0.55 : 1;
    pen.fill(path);
    pen.globalAlpha = 1;
    pen.strokeStyle = bar.key === chosen ? theme.ink : colour;
    pen.lineWidth = (bar.key === chosen ? 2 : 1) * ratio;
    if (hollow || bar.key === chosen) pen.stroke(path);
  }
  for (const bar of seen) {
    const [left, y, wide, tall] = boxOf(bar), text = [bar.label.subject, bar.label.comment && "…"].filter(Boolean).join(" ");
    if (!text || tall <= 13 * ratio || wide <= 24 * ratio) continue;
    pen.save();
    pen.beginPath();
    pen.rect(left, y, wide - 3 * ratio, tall);
    pen.clip();
    pen.fillStyle = hollow ? theme.ink : "#fff";
    pen.font = 11.5 * ratio + "px " + getComputedStyle(document.body).fontFamily;
    pen.textBaseline = "middle";
    pen.fillText(text, Math.max(left, 0) + 6 * ratio, y + tall / 2);
    pen.restore();
  }
}
/* Narrow bars are drawn without round corners, which would not be visible. */
function addBar(path, [left, y, wide, tall], ratio) {
  if (wide > 8 * ratio) path.roundRect(left, y, wide, tall, 3 * ratio);
  else path.rect(left, y, wide, tall);
}
/* Which label is under the pointer, and whether at one of its edges; the one that is chosen comes first. */
function barAt(x, y, reach = 6) {
  for (const lane of lanes) {
    const box = lanesShown()[lane.index].base.lastElementChild.getBoundingClientRect();
    if (y < box.top || y >= box.bottom) continue;
    const toX = (time) => box.left + (time - view[0]) / (view[1] - view[0]) * box.width;
    const hits = lane.bars.filter((bar) => {
      const [top, tall] = placeOf(lane, bar.level, box.height, 1), [start, end] = shownSpan(bar);
      return y - box.top >= top - 2 && y - box.top <= top + tall + 2 && x >= toX(start) - reach && x <= Math.max(toX(end), toX(start) + LEAST_BAR) + reach;
    });
    const bar = hits.find(({ key }) => key === chosen) ?? hits.at(-1);
    if (!bar) return null;
    const [start, end] = shownSpan(bar), [before, after] = [Math.abs(x - toX(start)), Math.abs(x - toX(end))];
    const edge = Math.min(before, after) > reach ? null : before < after ? "start" : "end";
    return { ...bar, edge: bar.label.end === null && edge === "end" ? null : edge };
  }
  return null;
}

function paintOverview(pen, toX, height, ratio) {
  const inset = 4 * ratio;
  hatch(pen, gaps, toX, height, ratio);
  for (const lane of lanes) {
    pen.fillStyle = colourOf(lane.name);
    const y = inset + (height - 2 * inset) * lane.index / lanes.length, tall = Math.max(ratio, (height - 2 * inset) / lanes.length - ratio / 2);
    const fill = (start, end) => pen.fillRect(toX(start), y, Math.max(ratio, toX(end) - toX(start)), tall);
    pen.globalAlpha = 0.4;
    for (const [, { start, end }] of lane.proposals) fill(start, end);
    pen.globalAlpha = 1;
    for (const { label } of lane.bars) fill(label.start, endOf(label));
  }
}

/* Edges that are dragged, by mouse or finger: they go from frame to frame, and the picture follows them. */
let dragged = null; /* {key, edge, start, end} */

const frameEnd = (at) => (at + 1 < times.length ? times[at + 1] : duration);
/* The moment that a pointer means: the start of a frame; the end of the video where it is nearer. */
function momentAt(x) {
  const time = timeAt($("surface"), x, view), at = numberAt(time), after = frameEnd(at);
  return time - times[at] < after - time ? times[at] : after;
}
function beginDrag(event, key, edge) {
  if (refusedWhileOpening()) return;
  const draft = draftOf(key), label = draft ?? labelsOf()[key], surface = $("surface");
  event.preventDefault();
  event.stopImmediatePropagation();
  surface.focus({ preventScroll: true });
  setRate(0);
  if (!draft && chosen !== key) chooseLabel(key, false);
  dragged = { key, edge, start: label.start, end: endOf(label) };
  const target = event.target;
  target.setPointerCapture(event.pointerId);
  const move = (moved) => {
    const time = momentAt(moved.clientX);
    if (edge === "start" && (label.end === null || time < label.end)) dragged.start = time;
    if (edge === "end" && time > label.start) dragged.end = time;
    seek(dragged[edge]);
    redraw();
  };
  const stop = (ended) => {
    for (const [kind, act] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) target.removeEventListener(kind, act);
    const time = dragged[edge];
    if (ended.type === "pointerup" && time !== label[edge]) (draft ? changeDraft : changeChosen)({ [edge]: time }, key);
    /* until the server has ordered it, the bar stays where it was let go */
    ask(() => { dragged = null; redraw(); return null; });
  };
  for (const [kind, act] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) target.addEventListener(kind, act);
}
function buildEdges() {
  const surface = $("surface");
  surface.addEventListener("pointerdown", (event) => {
    document.activeElement.blur(); /* so that typed text is saved to the selected label, before another one is selected */
    if (event.button || event.target !== surface) return;
    const hit = barAt(event.clientX, event.clientY);
    if (hit?.edge && event.pointerType !== "touch") beginDrag(event, hit.key, hit.edge);
    else if (hit) chooseLabel(hit.key, false);
    else if (chosen) chooseLabel(null);
  }, true);
  surface.addEventListener("pointermove", (event) => {
    if (!event.buttons) surface.style.cursor = barAt(event.clientX, event.clientY)?.edge ? "ew-resize" : "";
  });
  for (const edge of ["start", "end"]) $("edge-" + edge).addEventListener("pointerdown", (event) => { if (!event.button) beginDrag(event, chosen ?? reviewed.key, edge); }, true);
}
/* The handles of the chosen label, or of the proposal on show, wide enough for a finger. */
function placeEdges() {
  const draft = !chosen && draftOf(reviewed?.key), lane = lanes.find(({ id, bars }) => (draft ? id === draft.action : bars.some(({ key }) => key === chosen)));
  const bar = draft ? { key: reviewed.key, label: draft, level: 0 } : lane?.bars.find(({ key }) => key === chosen);
  for (const edge of ["start", "end"]) {
    if (!bar || (bar.label.end === null && edge === "end")) placeHandle($("edge-" + edge), null, 0, 0);
    else {
      const box = lanesShown()[lane.index].base.getBoundingClientRect(), [y, tall] = placeOf(draft ? { ends: [] } : lane, bar.level, box.height, 1);
      placeHandle($("edge-" + edge), shownSpan(bar)[edge === "start" ? 0 : 1], box.top - $("surface").getBoundingClientRect().top + y - 3, tall + 6);
    }
  }
}
