/* The stream of the service sends its whole state first, and then what changes. */
const QUIET = 12000; /* milliseconds; the service sends something every 5 s */
let stream = null, heardAt = 0, clockAhead = 0, zone = "Z", snoozes = [];

function listen() {
  stream?.close();
  stream = new EventSource("stream");
  const heard = () => { heardAt = Date.now(); $("broken").hidden = true; };
  heardAt = Date.now();
  stream.onopen = heard;
  stream.addEventListener("beat", heard);
  stream.onerror = () => { $("broken").hidden = false; };
  stream.onmessage = ({ data }) => {
    heard();
    for (const message of JSON.parse(data)) hear[message.kind](message);
  };
}
/* A connection may be dead without being closed, and a refused one is not opened again by the browser. */
setInterval(() => { if (!document.hidden && Date.now() - heardAt > QUIET) listen(); }, 1000);

/* Now, on the clock of the service. */
function nowText() {
  const at = new Date(Date.now() + clockAhead), shift = zone === "Z" ? 0 : (zone[0] === "-" ? -1 : 1) * (Number(zone.slice(1, 3)) * 60 + Number(zone.slice(4, 6)));
  return new Date(at.getTime() + shift * 60000).toISOString().slice(0, 23) + zone;
}
function readSnoozes(next) {
  snoozes = next.filter(({ until }) => wallOf(until) >= wallOf(nowText()));
  const text = ({ source, action, until }) => (action ?? "Every action") + " in " + (source ?? "every source") + ": not announced until " + (today(until) ? "" : until.slice(0, 10) + " ") + until.slice(11, 16);
  render(html`${snoozes.map((one) => html`<li>${text(one)}<${Button} onClick=${() => act("snooze", { source: one.source, action: one.action, seconds: 0 })}>End<//></li>`)}`, $("snoozes"));
}
function readAll(state) {
  zone = state.now.slice(23);
  clockAhead = Date.parse(state.now) - Date.now();
  Object.assign(report.colours, state.colours);
  for (const [name, source] of [...sources]) {
    if (state.sources.some((other) => other.name === name)) continue;
    leaveZones(source);
    sources.delete(name);
  }
  for (const source of sources.values()) source.events = source.events.filter(({ end }) => end);
  state.sources.forEach(readSource);
  state.on.forEach(keepInLane);
  readSnoozes(state.snoozes);
  showSources();
  $("add").open ||= !sources.size;
  widenAll();
  askEvents(false);
}
const widenAll = () => widenNames([...sources.values()].flatMap((source) => source.classes)); /* as wide in all sources */
const hear = {
  state: ({ state }) => readAll(state),
  scores: readScores,
  event: readEvent,
  source: ({ state }) => { sources.get(state.name).state = state; showSources(); },
  snoozes: ({ snoozes: next }) => readSnoozes(next),
};

onKeys(() => {
  if (document.querySelector("dialog[open]")) return {};
  const id = eventAt(0)?.dataset.id, places = [...sources.values()].slice(0, 9).entries();
  const goTo = ({ part: { base } }) => { base.focus(); base.scrollIntoView({ block: "nearest" }); };
  return {
    n: () => eventAt(1)?.focus(), p: () => eventAt(-1)?.focus(),
    r: () => id && judge(id, "right"), w: () => id && judge(id, "wrong"), c: () => id && play(id),
    m: () => { span = SPANS[(SPANS.indexOf(span) + 1) % SPANS.length]; showSources(); },
    ...Object.fromEntries([...places].map(([at, source]) => [at + 1, () => goTo(source)])),
  };
});
showClip(null);
$("player").addEventListener("close", () => { closeMedia($("clip")); showClip(null); });
$("add-form").addEventListener("submit", (event) => {
  event.preventDefault();
  $("add-status").textContent = "";
  post("sources", { name: $("add-name").value, address: $("add-address").value }).then(() => {
    $("add-form").reset();
    $("add").open = false;
  }, (error) => { $("add-status").textContent = error.message; });
});
new ResizeObserver(() => { widenAll(); redraw(); }).observe($("sources"));
followTheme(redraw);
listen();
setInterval(loadFrames, PICTURE_EVERY);
setInterval(() => { showEvents(); readSnoozes(snoozes); }, 1000);
