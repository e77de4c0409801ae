/* The scores of a source as they come, for lanes and lists. A page with lanes has these names. */
const { classes } = report;
const step = 0.25, begin = 0; /* seconds of a chunk, and where the first begins */
const fullScale = 65534, missing = 65535; /* codes of a score of 1 and of none */
const LEAST_CHUNKS = 40;
let chunks = 0, codes = new Uint16Array(0); /* room for so many chunks of each class */
let decided = 0, duration = LEAST_CHUNKS * step; /* seconds */
let segments = [], expected = [], gaps = [], lines = [], happened = [];
const truth = null; /* nobody has labelled it */
const names = [...classes];
const classOf = new Map(classes.map((label, index) => [label, index]));
const filter = { hidden: new Set([...classes.keys()].filter((index) => !report.rules[index])) };
const passes = (entry) => !filter.hidden.has(classOf.get(entry.label)), shows = passes, isFalse = () => false;
const ruleOf = (label) => report.rules[classOf.get(label)];
const tries = () => false, placeGrip = () => {}; /* thresholds are those of the model */
const clock = (time, digits = 2) => clockText(time, digits, duration >= 3600);

function makeRoom(wanted) {
  if (wanted <= chunks) return;
  const room = Math.max(wanted, 2 * chunks, LEAST_CHUNKS), wider = new Uint16Array(room * classes.length).fill(missing);
  for (const index of classes.keys()) wider.set(codes.subarray(index * chunks, (index + 1) * chunks), index * room);
  [chunks, codes] = [room, wider];
}
function forget(seconds) {
  chunks = 0;
  [segments, expected, gaps, lines, happened] = [[], [], [], [], []];
  [decided, duration] = [0, Math.max(seconds, step)];
  makeRoom(Math.floor(duration / step + 1e-6));
}
function takeDecision({ line, events, gaps: missed, scores }) {
  makeRoom(line.chunk + 1);
  scores.forEach((score, index) => { codes[index * chunks + line.chunk] = Math.round(Math.min(1, Math.max(0, score)) * fullScale); });
  decided = line.time;
  duration = Math.max(duration, decided);
  gaps.push(...missed.map(({ start, end }) => [start, end]));
  lines.push(...missed, line);
  takeEvents(events);
  for (const segment of segments) if (segment.open) segment.end = decided;
}
function takeEvents(events) {
  lines.push(...events);
  happened.push(...events);
  for (const { event, label, time, start, end, score } of events) {
    if (event === "started") segments.push({ label, start, end: time, score, announced: time, open: true });
    if (event === "ended") Object.assign(segments.findLast((segment) => segment.open && segment.label === label), { end, score, open: false });
    if (event === "expected") expected.push({ label, time, start });
  }
}
