/* A lane for each action and one for "nothing happens": names that start and stop, labels as bars, the whole video above. */
let names = [];
const LEAST_BAR = 5; /* pixels */

function buildLanes() {
  for (const lane of lanes) { near.unobserve(lane.row); lane.row.remove(); }
  lanes.length = 0;
  const actions = [...actionsInOrder().map(([id, action]) => ({ id, ...action })), { id: nothing, name: nameOf(nothing), key: "n" }];
  names = actions.map(({ name }) => name);
  report.colours = Object.fromEntries(actions.filter(({ id }) => id !== nothing).map(({ name }, at) => [name, report.palette[at % report.palette.length]]));
  actions.forEach(addLane);
  widenNames();
  redraw();
}
function addLane({ id, name, key }, index) {
  const row = make("div", "lane"), button = make("button"), plot = make("div", "plot"), canvas = make("canvas");
  const lane = { index, id, row, button, canvas, seen: false, dirty: true, bars: [] };
  button.type = "button";
  button.title = name + (key ? " starts and stops by " + key : "");
  paint(button, name);
  button.append(make("span", id === nothing ? "spot hollow" : "spot"), make("span", "cut", name), make("output"));
  if (key) button.append(make("kbd", "", key));
  button.addEventListener("click", () => pressAction(id, button));
  canvas.setAttribute("aria-hidden", "true");
  plot.append(canvas);
  row.append(button, plot);
  row.lane = lane;
  $("lanes").append(row);
  lanes.push(lane);
  near.observe(row);
}
/* The bars of each lane: labels of one action that overlap stand below each other. */
function fillLanes() {
  const byAction = new Map(lanes.map((lane) => [lane.id, lane]));
  const before = new Map(lanes.map((lane) => [lane, { bars: lane.bars, proposals: lane.proposals ?? [] }])), gapsBefore = gaps;
  for (const lane of lanes) { lane.bars = []; lane.deep = 1; }
  const free = new Map();
  for (const [key, label] of inOrder()) {
    const lane = byAction.get(label.action);
    if (!lane) continue;
    const ends = free.get(lane) ?? [];
    free.set(lane, ends);
    let level = ends.findIndex((end) => end <= label.start + 1e-6);
    if (level < 0) level = ends.length;
    ends[level] = label.end ?? Infinity;
    lane.bars.push({ key, label, level });
    lane.deep = ends.length;
  }
  for (const lane of lanes) {
    const open = lane.bars.filter(({ label }) => label.end === null);
    lane.open = open.length > 0;
    lane.button.setAttribute("aria-pressed", String(lane.open));
    lane.button.querySelector("output").textContent = open.length ? "from " + clockText(open[0].label.start, 1) : "";
  }
  fillProposals();
  gaps = unknownStretches();
  const stay = isSame(gaps, gapsBefore, ([start, end], [from, to]) => start === from && end === to);
  for (const lane of lanes) lane.dirty ||= !stay || isOther(lane, before.get(lane));
  overview = null;
}
const isSame = (some, others, areAlike) => some.length === others.length && some.every((one, at) => areAlike(one, others[at]));
/* Whether a lane has to be drawn again: a value that has changed is another object. */
function isOther(lane, { bars, proposals }) {
  const bar = (one, other) => one.key === other.key && one.label === other.label && one.level === other.level;
  return !isSame(lane.bars, bars, bar) || !isSame(lane.proposals, proposals, ([, one], [, other]) => one === other);
}
const endOf = (label) => label.end ?? Math.max(now, label.start);
/* A bar while it is dragged is where the pointer has it. */
const shownSpan = ({ key, label }) => (dragged?.key === key ? [dragged.start, dragged.end] : [label.start, endOf(label)]);
function placeOf(lane, level, height, ratio) {
  const space = 4 * ratio, each = (height - 2 * space) / lane.deep;
  return [space + level * each, Math.max(2 * ratio, each - (lane.deep > 1 ? ratio : 0))];
}
function drawLane(lane) {
  const { pen, width, height, ratio } = fresh(lane.canvas), span = view[1] - view[0], toX = (time) => (time - view[0]) / span * width;
  pen.strokeStyle = theme.line;
  pen.lineWidth = ratio;
  for (const [x, wide] of placed(pen, gaps, toX, 1)) hatchBox(pen, x, 0, wide, height, 7 * ratio);
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
    const [left, y, wide, tall] = boxOf(bar);
    if (tall <= 13 * ratio || wide <= 24 * ratio) continue;
    const text = [bar.label.subject, bar.label.comment && "…"].filter(Boolean).join(" ");
    if (text) drawText(pen, text, left, y, wide, tall, ratio, hollow ? theme.ink : "#fff");
  }
  lane.dirty = lane.open && rate !== 0;
}
/* Narrow ones have no corners that anybody sees. */
function addBar(path, [left, y, wide, tall], ratio) {
  if (wide > 8 * ratio) path.roundRect(left, y, wide, tall, 3 * ratio);
  else path.rect(left, y, wide, tall);
}
function drawText(pen, text, left, y, wide, tall, ratio, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(left, y, wide - 3 * ratio, tall);
  pen.clip();
  pen.fillStyle = colour;
  pen.font = 11.5 * ratio + "px " + getComputedStyle(document.body).fontFamily;
  pen.textBaseline = "middle";
  pen.fillText(text, Math.max(left, 0) + 6 * ratio, y + tall / 2);
  pen.restore();
}
/* Which label is under the pointer, and whether at one of its edges; the one that is chosen comes first. */
function barAt(x, y, reach = 6) {
  for (const lane of lanes) {
    const box = lane.canvas.getBoundingClientRect();
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

let gaps = [], overview = null;
function drawOverview() {
  const { pen, width, height, ratio } = fresh($("overview").firstElementChild), toX = (time) => time / duration * width;
  if (!overview || overview.width !== width || overview.height !== height) {
    overview = new OffscreenCanvas(width, height);
    const brush = overview.getContext("2d"), inset = 4 * ratio;
    brush.strokeStyle = theme.truth;
    brush.lineWidth = ratio * 0.75;
    for (const [x, wide] of placed(brush, gaps, toX, 1)) hatchBox(brush, x, 0, wide, height, 6 * ratio);
    for (const lane of lanes) {
      brush.fillStyle = colourOf(names[lane.index]);
      const y = inset + (height - 2 * inset) * lane.index / lanes.length, tall = Math.max(ratio, (height - 2 * inset) / lanes.length - ratio / 2);
      brush.globalAlpha = 0.4;
      for (const [, { start, end }] of lane.proposals ?? []) brush.fillRect(toX(start), y, Math.max(ratio, toX(end) - toX(start)), tall);
      brush.globalAlpha = 1;
      for (const { label } of lane.bars) brush.fillRect(toX(label.start), y, Math.max(ratio, toX(endOf(label)) - toX(label.start)), tall);
    }
  }
  pen.drawImage(overview, 0, 0);
  drawPart(pen, toX, width, height, ratio);
}
