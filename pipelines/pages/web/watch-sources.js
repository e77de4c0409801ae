/* The sources that are watched: of each its picture, its lanes and how its link is. The lanes are drawn as a report's,
   which draws one video at a time: `take` makes a source the one that is drawn. */
const step = 0.25, begin = 0, ROWS = 2400; /* seconds of a chunk; chunks whose scores are kept */
const fullScale = report.full_scale, missing = report.no_score;
const SPANS = [60, 300, 600], PICTURE_EVERY = 500; /* seconds in view; milliseconds */
const sources = new Map();
let span = SPANS[0];

let names = [], classes = [], codes = new Uint8Array(0), gaps = [], view = [0, span], rules = {}, now = 0;
const chunks = ROWS, duration = ROWS * step, truth = null, expected = [];
const passes = () => true, isFalse = () => false, tries = () => false, placeGrip = () => {};
const ruleOf = (label) => (rules[label] ? { on: rules[label][0], off: rules[label][1] } : null);
function take(source) {
  [classes, codes, gaps, rules] = [source.classes, source.codes, source.gaps, source.rules];
  names = classes;
  view = [duration - span, duration];
}

const wallOf = (text) => (text ? Date.parse(text) : NaN);
const lastTime = (text) => text.slice(11, 19); /* on the clock of the machine that watches */
function post(path, body) {
  return fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }).then(async (answer) => {
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error([found.error ?? "That was refused (" + answer.status + ").", found.hint].filter(Boolean).join(" "));
    return found;
  });
}
let silence = 0;
function tell(text) {
  $("told").textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => { $("told").textContent = ""; }, 6000);
}
const act = (path, body, done) => post(path, body).then(done, (error) => tell(error.message));
const pathOf = (source, deed) => "source/" + encodeURIComponent(source.name) + "/" + deed;

/* Bytes of base64. */
function bytesOf(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) target.source.inSight = isIntersecting;
});
const button = (className, text, action) => {
  const made = make("button", className, text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
};
function choice(pairs, name) {
  const select = make("select");
  if (name) select.setAttribute("aria-label", name);
  for (const [value, text] of pairs) select.append(new Option(text, value));
  return select;
}

function addSource(state) {
  const card = make("article", "card source"), source = { name: state.name, card, lanes: [], events: [], inSight: false, shown: 0 };
  card.source = source;
  card.tabIndex = -1;
  card.setAttribute("aria-label", "Source " + state.name);
  source.link = make("span", "link");
  source.address = make("span", "address soft cut");
  source.pause = button("", "Pause", () => act(pathOf(source, source.paused ? "resume" : "pause"), {}));
  const heading = make("div", "heading"), buttons = make("div", "buttons");
  buttons.append(source.pause, makeMenu(source));
  heading.append(make("h2", "cut", state.name), source.link, source.address, buttons);
  const box = make("div", "sight"), picture = make("div", "picture"), view = make("div", "view"), plot = make("div", "plot-box");
  source.image = make("img");
  source.image.hidden = true;
  source.blank = make("p", "blank", "");
  source.now = make("p", "now");
  source.now.hidden = true;
  source.image.addEventListener("load", () => {
    source.size = [source.image.naturalWidth, source.image.naturalHeight]; /* which the next one hides while it comes */
    source.image.hidden = false;
    source.blank.hidden = true;
    showZones(source);
    paintZones(source);
  });
  view.append(source.image, makeVeil(source));
  picture.append(view, source.blank, source.now);
  source.rows = make("div", "rows");
  source.ago = make("p", "ago");
  source.ago.setAttribute("aria-hidden", "true");
  plot.append(source.rows, source.ago);
  box.append(picture, plot);
  source.trouble = make("p", "trouble");
  source.numbers = make("dl", "numbers");
  card.append(heading, box, source.trouble, source.numbers);
  $("sources").append(card);
  sight.observe(card);
  sources.set(state.name, source);
  return source;
}
function makeMenu(source) {
  const menu = make("details", "menu"), sheet = make("div", "sheet");
  source.snoozed = choice([["", "every action"]], "Action");
  const time = choice([["900", "15 minutes"], ["3600", "1 hour"], ["28800", "8 hours"], ["86400", "1 day"]], "For how long");
  const row = (text, field) => { const label = make("label", "", text); label.append(field); return label; };
  const close = () => { menu.open = false; };
  time.value = "3600";
  const go = button("", "Snooze: nobody is told", () => act("snooze", { source: source.name, action: source.snoozed.value || null, seconds: Number(time.value) }, close));
  const remove = button("", "Remove this source", () => {
    if (remove.dataset.sure) return act(pathOf(source, "remove"), {}, close);
    remove.dataset.sure = "1";
    remove.textContent = "Press again to remove it";
  });
  menu.addEventListener("toggle", () => { delete remove.dataset.sure; remove.textContent = "Remove this source"; });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    close();
    menu.querySelector("summary").focus();
  });
  document.addEventListener("pointerdown", (event) => { if (!menu.contains(event.target)) close(); });
  const zones = button("", "Zones: where motion counts", () => { close(); editZones(source); });
  sheet.append(row("Snooze", source.snoozed), row("for", time), go, make("hr"), zones, remove);
  menu.append(make("summary", "", "More"), sheet);
  menu.querySelector("summary").setAttribute("aria-label", "More for " + source.name);
  return menu;
}
function removeSource(name) {
  const source = sources.get(name);
  if (!source) return;
  leaveZones(source);
  dropLanes(source);
  sight.unobserve(source.card);
  source.card.remove();
  sources.delete(name);
  $("no-sources").hidden = sources.size > 0;
}
function dropLanes(source) {
  for (const lane of source.lanes) {
    near.unobserve(lane.row);
    lanes.splice(lanes.indexOf(lane), 1);
  }
  source.lanes = [];
  source.rows.replaceChildren();
}

/* A lane for each action of the model. */
function fillLanesOf(source) {
  dropLanes(source);
  source.classes.forEach((label, index) => {
    if (report.undecidable.includes(label)) return;
    const row = make("div", "lane"), name = make("div", "name"), plot = make("div", "plot");
    const lane = { source, index, row, canvas: make("canvas"), value: make("output", "", "–"), seen: false, dirty: true, detected: [], foreseen: [] };
    lane.value.setAttribute("aria-live", "off");
    lane.canvas.setAttribute("aria-hidden", "true");
    name.append(spot(label), make("span", "cut", label), lane.value);
    name.title = label;
    plot.append(lane.canvas);
    row.append(name, plot);
    row.lane = lane;
    source.rows.append(row);
    source.lanes.push(lane);
    lanes.push(lane);
    near.observe(row);
  });
  const actions = source.lanes.map(({ index }) => source.classes[index]), kept = source.snoozed.value;
  source.snoozed.replaceChildren(new Option("every action", ""), ...actions.map((label) => new Option(label, label)));
  source.snoozed.value = actions.includes(kept) ? kept : "";
  if (!source.lanes.length) source.rows.append(make("p", "no-lanes", "The lanes come with its first decision."));
}

/* All of a source, as the state has it. */
function readSource(state) {
  const source = sources.get(state.name) ?? addSource(state), given = bytesOf(state.codes), count = state.columns;
  Object.assign(source, { classes: state.classes, rules: state.rules, newest: state.first + count - 1, at: wallOf(state.at), picture: state.picture });
  source.codes = new Uint8Array(source.classes.length * ROWS).fill(missing);
  for (let row = 0; row < source.classes.length; row++) source.codes.set(given.subarray(row * count, (row + 1) * count), (row + 1) * ROWS - count);
  fillLanesOf(source);
  findGaps(source);
  readState(source, state);
  readZones(source, state);
  showScores(source);
}
/* How a source is. */
function readState(source, state) {
  Object.assign(source, { paused: state.paused, state: state.link });
  source.link.className = "link " + state.link;
  source.link.textContent = { reading: "live", waiting: "not open yet", connecting: "connecting …", stalled: "sends nothing", lost: "lost, connecting again …" }[state.link] ?? state.link;
  source.address.textContent = source.address.title = state.address;
  source.pause.textContent = state.paused ? "Resume" : "Pause";
  source.pause.setAttribute("aria-label", source.pause.textContent + " " + source.name);
  source.card.classList.toggle("paused", state.paused);
  source.card.classList.toggle("away", ["lost", "stalled", "ended"].includes(state.link));
  source.blank.textContent = state.paused ? "Paused: nothing is read." : "No picture yet.";
  source.trouble.textContent = state.trouble;
  source.trouble.hidden = !state.trouble;
  const rows = [
    ["Lag (p95)", state.lag_ms === null ? "–" : numberText(state.lag_ms) + " ms", state.lag_ms > 1000],
    ["Decided", numberText(state.decided)], ["Dropped", numberText(state.dropped), state.dropped > 0],
    ["Not seen", numberText(state.unseen), state.unseen > 0], ["Reconnected", numberText(state.reconnects)],
  ];
  source.numbers.replaceChildren();
  for (const [name, value, bad] of rows) term(source.numbers, name, value, bad ? "bad" : "");
}

/* One decision more. */
function readScores({ source: name, column, at, codes: text, picture }) {
  const source = sources.get(name), given = bytesOf(text);
  if (!source || given.length !== source.classes.length || column <= source.newest) return;
  const moved = Math.min(ROWS, column - source.newest);
  for (let row = 0; row < given.length; row++) {
    const first = row * ROWS, end = first + ROWS;
    source.codes.copyWithin(first, first + moved, end);
    source.codes.fill(missing, end - moved, end);
    source.codes[end - 1] = given[row];
  }
  source.newest = column;
  source.at = wallOf(at);
  source.picture = picture;
  findGaps(source);
  showScores(source);
}
/* What was not decided since the first decision in view. */
function findGaps(source) {
  source.gaps = [];
  let before = -1;
  for (let column = 0; column < (source.classes.length ? ROWS : 0); column++) {
    if (source.codes[column] === missing) continue;
    if (before >= 0 && column > before + 1) source.gaps.push([(before + 1) * step, column * step]);
    before = column;
  }
}
function showScores(source) {
  let best = -1, top = -1;
  source.classes.forEach((_, index) => {
    const code = source.codes[(index + 1) * ROWS - 1];
    if (code !== missing && code > top) [best, top] = [index, code];
  });
  for (const lane of source.lanes) {
    const code = source.codes[(lane.index + 1) * ROWS - 1];
    lane.value.textContent = code === missing ? "–" : scoreText(code / fullScale);
    lane.row.classList.toggle("on", source.events.some((event) => !event.end && event.action === source.classes[lane.index]));
    lane.dirty = true;
  }
  source.now.hidden = best < 0 || source.paused;
  if (best >= 0) {
    const label = source.classes[best];
    source.now.replaceChildren(spot(label), make("span", "cut", label), make("output", "", scoreText(top / fullScale)));
    paint(source.now, label).classList.toggle("on", source.events.some((event) => !event.end));
  }
  schedule();
}
/* Events as bars of a lane, on its time: that of the newest decision is the end of the view. */
function barsOf(source, label) {
  const toTime = (wall) => duration + (wall - source.at) / 1000;
  return source.events.filter(({ action }) => action === label).map(({ start, end, decided }) => ({
    label, start: toTime(wallOf(start)), end: end ? toTime(wallOf(end)) : duration, announced: toTime(wallOf(decided)),
  })).filter(({ end }) => end > 0);
}
function frame() {
  frameAsked = false;
  for (const lane of lanes) {
    if (!lane.seen || !lane.dirty) continue;
    take(lane.source);
    lane.detected = barsOf(lane.source, classes[lane.index]);
    drawLane(lane);
  }
}
/* The column of names is as wide in all sources. */
function widenAll() {
  names = [...sources.values()].flatMap((source) => source.classes);
  widenNames();
}
function showSpan() {
  const text = (seconds) => (seconds ? (seconds < 60 ? seconds + " s ago" : seconds / 60 + " min ago") : "now");
  for (const { ago } of sources.values()) ago.replaceChildren(...[span, span / 2, 0].map((seconds) => make("span", "", text(seconds))));
}
/* The newest picture of each source in sight, once the one before it has come; none while nobody looks. */
function lookAtPictures() {
  if (document.hidden) return;
  for (const source of sources.values()) {
    if (!source.inSight || !source.picture || source.picture === source.shown || !source.image.complete) continue;
    source.shown = source.picture;
    source.image.src = "picture/" + encodeURIComponent(source.name) + "?" + source.picture;
  }
}
