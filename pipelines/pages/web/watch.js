/* What happens is heard by server-sent events; a page that slept is told what it missed, or reads all of it anew. */
const QUIET = 12000; /* milliseconds; the service says something every 5 s at least */
let stream = null, retry = 0, mark = "", kept = null, heardAt = Date.now();
const runOf = (at) => at.split("-")[0];

/* The state of all sources: what came while it was on its way is kept, and heard after it. */
async function readAnew() {
  if (kept) return;
  kept = [];
  clearTimeout(retry);
  const answer = await fetch("state").catch(() => null), state = answer?.ok ? await answer.json().catch(() => null) : null;
  const missed = kept;
  kept = null;
  if (!state) return failed(answer?.status);
  readAll(state);
  missed.filter(({ to }) => runOf(to) === runOf(mark)).forEach(readPiece);
}
function failed(status) {
  showBroken(status);
  clearTimeout(retry);
  retry = setTimeout(readAnew, 5000);
}
function showBroken(status) {
  $("broken").textContent = status === 403 ? "This page is no longer allowed: open the address that the service has printed."
    : "The service does not answer. This page goes on when it does.";
  $("broken").hidden = false;
}
/* Messages that end at a mark RUN-NUMBER, as the stream has them; those that are known already are passed over. */
function readPiece({ to, data }) {
  if (kept) return kept.push({ to, data });
  const messages = JSON.parse(data), missing = to.split("-")[1] - mark.split("-")[1];
  if (runOf(to) !== runOf(mark) || missing > messages.length) return readAnew();
  if (missing <= 0) return;
  mark = to;
  for (const message of messages.slice(-missing)) {
    if (message.kind === "anew") return readAnew();
    hear[message.kind](message);
  }
}
function goOn(at) {
  mark = at;
  if (!stream) listen();
}
function listen() {
  const opened = stream = new EventSource("stream?after=" + encodeURIComponent(mark));
  const on = (kind, hears) => opened.addEventListener(kind, (event) => {
    if (opened !== stream) return;
    heardAt = Date.now();
    $("broken").hidden = true;
    hears(event);
  });
  const over = () => { opened.close(); stream = null; };
  on("open", () => {});
  on("beat", () => {});
  on("message", ({ lastEventId, data }) => readPiece({ to: lastEventId, data }));
  on("anew", () => { over(); readAnew(); });
  on("error", () => {
    if (opened.readyState === EventSource.CLOSED) { over(); failed(); } else showBroken();
  });
}
/* Nothing is heard, and somebody looks: the connection is dead, and nobody has closed it. */
setInterval(() => {
  if (document.hidden || !stream || Date.now() - heardAt < QUIET) return;
  heardAt = Date.now();
  stream.close();
  listen();
}, 1000);

/* The page as a whole: its clock, what each message changes, keys. */
let clockAhead = 0, zone = "", snoozes = [];

/* Now, on the clock of the machine that watches. */
function nowText() {
  const at = new Date(Date.now() + clockAhead), shift = zone === "Z" ? 0 : (zone[0] === "-" ? -1 : 1) * (Number(zone.slice(1, 3)) * 60 + Number(zone.slice(4, 6)));
  return new Date(at.getTime() + shift * 60000).toISOString().slice(0, 23) + zone;
}
function readSnoozes(next) {
  snoozes = next.filter(({ until }) => !until || wallOf(until) >= wallOf(nowText()));
  const text = ({ source, action, until }) => [action ?? "Every action", source ? "in " + source : "in every source"].join(" ") + ": nobody is told"
    + (until ? " until " + (today(until) ? "" : until.slice(0, 10) + " ") + until.slice(11, 16) : "");
  render(html`${snoozes.map((one) => html`<li>${text(one)}<${Button} onClick=${() => act("snooze", { source: one.source, action: one.action, seconds: 0 })}>End<//></li>`)}`, $("snoozes"));
}
function readAll(state) {
  zone = state.now.slice(23);
  clockAhead = Date.parse(state.now) - Date.now();
  Object.assign(report.colours, state.colours);
  for (const name of [...sources.keys()]) if (!state.sources.some((source) => source.name === name)) removeSource(name);
  for (const source of sources.values()) source.events = source.events.filter(({ end }) => end);
  state.sources.forEach(readSource);
  state.on.forEach(keepInLane);
  readSnoozes(state.snoozes);
  showSources();
  $("add").open ||= !sources.size;
  widenAll();
  askEvents(false);
  goOn(state.at);
}
/* The column of names is as wide in all sources. */
const widenAll = () => widenNames([...sources.values()].flatMap((source) => source.classes));
const hear = {
  scores: readScores,
  event: readEvent,
  source: ({ state }) => {
    const source = sources.get(state.name);
    if (!source) return readAnew();
    source.state = state;
    showSources();
  },
  gone: ({ source }) => removeSource(source),
  snoozes: ({ snoozes: next }) => readSnoozes(next),
  zones: ({ source, ...zones }) => { if (sources.has(source)) showSource(Object.assign(sources.get(source), zones)); },
};

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  const id = eventAt(0)?.dataset.id, source = /^[1-9]$/.test(event.key) && [...sources.values()][Number(event.key) - 1];
  const actions = {
    n: () => eventAt(1)?.focus(), p: () => eventAt(-1)?.focus(),
    r: () => id && judge(id, "right"), w: () => id && judge(id, "wrong"), c: () => id && play(id),
    m: () => { span = SPANS[(SPANS.indexOf(span) + 1) % SPANS.length]; showSources(); },
  };
  const deed = source ? () => { source.part.base.focus(); source.part.base.scrollIntoView({ block: "nearest" }); } : actions[event.key];
  if (!deed) return;
  event.preventDefault();
  deed();
}
function addSource(event) {
  event.preventDefault();
  $("add-told").textContent = "";
  post("sources", { name: $("add-name").value.trim(), address: $("add-address").value.trim() }).then(() => {
    $("add-form").reset();
    $("add").open = false;
    readAnew();
  }, (error) => { $("add-told").textContent = error.message; });
}

showClip(null);
buildZones();
$("player").addEventListener("close", () => { closeMedia($("clip")); showClip(null); });
$("add-form").addEventListener("submit", addSource);
document.addEventListener("keydown", key);
new ResizeObserver(() => { widenAll(); redraw(); }).observe($("sources"));
followTheme(redraw);
readAll(report.state);
setInterval(lookAtPictures, PICTURE_EVERY);
setInterval(() => { lengthen(); readSnoozes(snoozes); }, 1000);
