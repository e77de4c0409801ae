/* The page as a whole: its clock, what each message changes, keys. */
let clockAhead = 0, zone = "";

/* Now, on the clock of the machine that watches. */
function nowText() {
  const at = new Date(Date.now() + clockAhead), shift = zone === "Z" ? 0 : (zone[0] === "-" ? -1 : 1) * (Number(zone.slice(1, 3)) * 60 + Number(zone.slice(4, 6)));
  return new Date(at.getTime() + shift * 60000).toISOString().slice(0, 23) + zone;
}
function readClock(text) {
  zone = text.slice(23);
  clockAhead = Date.parse(text) - Date.now();
}
function readSnoozes(snoozes) {
  $("snoozes").replaceChildren(...snoozes.map(({ source, action, until }) => {
    const item = make("li", "", [action ?? "Every action", source ? "in " + source : "in every source"].join(" ") + ": nobody is told" + (until ? " until " + (today(until) ? "" : until.slice(0, 10) + " ") + until.slice(11, 16) : ""));
    item.dataset.until = until ?? "";
    item.append(button("", "End", () => act("snooze", { source, action, seconds: 0 })));
    return item;
  }));
}
function endSnoozes() {
  for (const item of [...$("snoozes").children]) if (wallOf(item.dataset.until) < wallOf(nowText())) item.remove();
}
function readAll(state) {
  readClock(state.now);
  Object.assign(report.colours, state.colours);
  for (const name of [...sources.keys()]) if (!state.sources.some((source) => source.name === name)) removeSource(name);
  for (const source of sources.values()) source.events = source.events.filter(({ end }) => end);
  state.sources.forEach(readSource);
  state.on.forEach(keepInLane);
  readSnoozes(state.snoozes);
  $("no-sources").hidden = sources.size > 0;
  $("add").open ||= !sources.size;
  $("legend-rule").hidden = ![...sources.values()].some(({ rules }) => Object.keys(rules).length);
  fillFilters();
  widenAll();
  showSpan();
  showFacts();
  askEvents(false);
  goOn(state.at);
}
function showFacts() {
  const live = [...sources.values()].filter(({ state }) => state === "reading").length;
  $("facts").replaceChildren();
  if (sources.size) term($("facts"), "Live", live + " of " + countText(sources.size, "source"));
}
const hear = {
  scores: readScores,
  event: readEvent,
  source: ({ state }) => {
    const source = sources.get(state.name);
    if (!source) return readAnew();
    readState(source, state);
    showFacts();
  },
  gone: ({ source }) => { removeSource(source); fillFilters(); showFacts(); },
  snoozes: ({ snoozes }) => readSnoozes(snoozes),
  zones: ({ source, ...zones }) => { if (sources.has(source)) readZones(sources.get(source), zones); },
};

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  const id = eventAt(0)?.dataset.id;
  const actions = {
    n: () => eventAt(1)?.focus(), p: () => eventAt(-1)?.focus(),
    r: () => id && judge(id, "right"), w: () => id && judge(id, "wrong"), c: () => id && play(id),
    m: () => { span = SPANS[(SPANS.indexOf(span) + 1) % SPANS.length]; showSpan(); redraw(); },
  };
  const source = /^[1-9]$/.test(event.key) && [...sources.values()][Number(event.key) - 1];
  if (source) {
    event.preventDefault();
    source.card.focus();
    source.card.scrollIntoView({ block: "nearest" });
  } else if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
}

buildEvents();
buildZones();
$("add-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("add-name").value.trim(), address = $("add-address").value.trim();
  $("add-told").textContent = "";
  post("sources", { name, address }).then(() => {
    $("add-form").reset();
    $("add").open = false;
    readAnew();
  }, (error) => { $("add-told").textContent = error.message; });
});
$("add").addEventListener("keydown", ({ key: pressed }) => {
  if (pressed !== "Escape") return;
  $("add").open = false;
  $("add").querySelector("summary").focus();
});
document.addEventListener("keydown", key);
new ResizeObserver(() => { widenAll(); redraw(); }).observe($("sources"));
followTheme(redraw);
readAll(report.state);
setInterval(lookAtPictures, PICTURE_EVERY);
setInterval(() => { lengthen(); endSnoozes(); }, 1000);
