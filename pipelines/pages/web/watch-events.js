/* The list of events: those that are on first, then the newest; filters, verdicts, clips. */
const PAGE = 50, RECENT = 600e3; /* rows at a time; milliseconds that events stay in the lanes */
const shownEvents = new Map(); /* id to event, of what the filters leave */
const drawnEvents = new Map(); /* id to row */
let asked = 0, atEnd = false;

const isOn = (event) => !event.end;
const newestFirst = (one, other) => isOn(other) - isOn(one) || wallOf(other.start) - wallOf(one.start) || (one.id < other.id ? 1 : -1);
const filters = () => ({ action: $("by-action").value, source: $("by-source").value, day: $("by-day").value, score: Number($("by-score").value) || "" });
const fits = (event) => {
  const { action, source, day, score } = filters();
  return (!action || event.action === action) && (!source || event.source === source) && (!day || event.start.slice(0, 10) === day) && event.top_score >= (score || 0);
};
function secondsText(seconds) {
  if (seconds < 60) return (seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)) + " s";
  return clockText(seconds, 0) + (seconds < 3600 ? " min" : " h");
}
const today = (text) => text.slice(0, 10) === nowText().slice(0, 10);
function whenText(event) {
  const day = today(event.start) ? "" : event.start.slice(0, 10) + " ";
  const length = secondsText(event.seconds) + (isOn(event) ? " so far" : event.still_on ? ", until its source ended" : "");
  return day + lastTime(event.start) + " · " + length + " · score " + scoreText(event.top_score);
}

function makeRow(event) {
  const row = make("li", "event");
  row.tabIndex = -1;
  row.dataset.id = event.id;
  row.append(spot(event.action), make("p", "what"), make("p", "when"), make("div", "marks"));
  const marks = row.lastChild, mark = (className, verdict, name) => {
    const made = button(className, "", () => judge(event.id, verdict));
    made.setAttribute("aria-label", name);
    made.title = name;
    return made;
  };
  marks.append(mark("yes", "right", "Right: it happened (r)"), mark("no", "wrong", "Wrong: it did not happen (w)"));
  row.addEventListener("focusin", () => { for (const one of drawnEvents.values()) one.tabIndex = one === row ? 0 : -1; });
  return row;
}
function fillRow(row, event) {
  paint(row, event.action).classList.toggle("on", isOn(event));
  const [, what, when, marks] = row.children;
  what.replaceChildren(event.action, make("span", "soft", "in " + event.source));
  when.textContent = whenText(event);
  marks.firstChild.setAttribute("aria-pressed", String(event.verdict === "right"));
  marks.lastChild.setAttribute("aria-pressed", String(event.verdict === "wrong"));
  const held = row.querySelector(".thumb"), wanted = event.clip || event.picture;
  if (held && !wanted) held.remove();
  if (!wanted || held?.dataset.of === event.clip + "|" + event.picture) return;
  held?.remove();
  const thumb = event.clip ? button("thumb", "", () => play(event.id)) : make("div", "thumb");
  thumb.dataset.of = event.clip + "|" + event.picture;
  if (event.clip) thumb.setAttribute("aria-label", "Play the clip (c)");
  if (event.picture) {
    const image = make("img");
    image.loading = "lazy";
    image.alt = "";
    image.src = "thumb/" + event.id;
    thumb.append(image);
  } else thumb.textContent = "Clip";
  row.append(thumb);
}
function listEvents() {
  const order = [...shownEvents.values()].sort(newestFirst);
  for (const [id, row] of drawnEvents) if (!shownEvents.has(id)) { row.remove(); drawnEvents.delete(id); }
  order.forEach((event, at) => {
    const row = drawnEvents.get(event.id) ?? makeRow(event);
    fillRow(row, event);
    drawnEvents.set(event.id, row);
    if ($("event-rows").children[at] !== row) $("event-rows").insertBefore(row, $("event-rows").children[at] ?? null);
  });
  const first = $("event-rows").firstElementChild;
  if (first && ![...drawnEvents.values()].some((row) => row.tabIndex === 0)) first.tabIndex = 0;
  const on = order.filter(isOn).length, { action, source, day, score } = filters(), filtered = action || source || day || score;
  $("count").textContent = on ? "Events, " + on + " on now" : "Events";
  $("show-all").hidden = !filtered;
  $("older").hidden = atEnd;
  $("no-events").hidden = order.length > 0;
  $("no-events").textContent = filtered ? "No event fits: choose another action, source or day, or a lower score."
    : sources.size ? "Nothing has happened yet. What is decided from now on is listed here." : "No event yet: add a source first.";
}
/* Ask for the events that the filters want; `older` than the ones that are listed, or anew. */
async function askEvents(older) {
  const number = ++asked, oldest = [...shownEvents.values()].filter((event) => !isOn(event)).sort(newestFirst).at(-1);
  const query = new URLSearchParams({ limit: PAGE });
  for (const [key, value] of Object.entries(filters())) if (value) query.set(key, value);
  if (older && oldest) query.set("before", oldest.id);
  const answer = await fetch("events?" + query).catch(() => null);
  if (number !== asked) return;
  if (!answer?.ok) return tell("The events could not be read.");
  const { events } = await answer.json();
  if (!older) shownEvents.clear();
  atEnd = events.length < PAGE;
  for (const event of events) { shownEvents.set(event.id, event); keepInLane(event); }
  for (const source of sources.values()) {
    for (const event of source.events) if (isOn(event) && fits(event)) shownEvents.set(event.id, event);
    showScores(source);
  }
  listEvents();
}
/* An event in the lanes of its source, for as long as they reach. */
function keepInLane(event) {
  const source = sources.get(event.source);
  if (!source) return;
  const least = Math.max(source.at || 0, wallOf(event.seen)) - RECENT;
  source.events = source.events.filter((one) => one.id !== event.id && (isOn(one) || wallOf(one.end) > least));
  if (isOn(event) || wallOf(event.end) > least) source.events.push(event);
}
function readEvent({ phase, event }) {
  keepInLane(event);
  if (fits(event) && (phase !== "update" || shownEvents.has(event.id))) shownEvents.set(event.id, event);
  else shownEvents.delete(event.id);
  const over = [...shownEvents.values()].sort(newestFirst).slice(20 * PAGE); /* a page that is open for weeks */
  for (const { id } of over) shownEvents.delete(id);
  if (over.length) atEnd = false;
  if (sources.has(event.source)) showScores(sources.get(event.source));
  listEvents();
  const words = event.action + " in " + event.source;
  if (phase === "new") $("announced").textContent = words + ", " + lastTime(event.start) + ", score " + scoreText(event.score);
  if (phase === "end") $("announced").textContent = words + " has ended after " + secondsText(event.seconds);
}
/* Events that are on become longer. */
function lengthen() {
  const at = wallOf(nowText());
  for (const event of shownEvents.values()) {
    if (!isOn(event)) continue;
    event.seconds = Math.max(event.seconds, (at - wallOf(event.start)) / 1000);
    const row = drawnEvents.get(event.id);
    if (row) row.children[2].textContent = whenText(event);
  }
}

function judge(id, verdict) {
  const event = shownEvents.get(id);
  if (event) act("event/" + id + "/verdict", { verdict: event.verdict === verdict ? "" : verdict }, ({ event: judged }) => readEvent({ phase: "update", event: judged }));
}
function play(id) {
  const event = shownEvents.get(id);
  if (!event?.clip) return tell("Of this event there is no clip.");
  $("player-title").textContent = event.action + " in " + event.source + ", " + lastTime(event.start);
  $("save").download = [event.source, event.action, event.start.slice(0, 19).replaceAll(":", "-")].join(" ") + event.clip.slice(event.clip.lastIndexOf("."));
  $("save").href = $("clip").src = "clip/" + id;
  $("clip").hidden = $("save").hidden = false;
  $("no-clip").hidden = true;
  $("player").showModal();
  $("clip").play().catch(() => {}); /* where a browser waits for a press */
}
/* A clip is kept as the camera sent it, in a codec that not every browser knows (HEVC): some show black then, some nothing. */
async function showUnplayable() {
  const path = $("clip").getAttribute("src");
  if (!path) return;
  const answer = await fetch(path, { method: "HEAD" }).catch(() => null);
  if ($("clip").getAttribute("src") !== path) return;
  $("no-clip").textContent = answer?.ok ? "This browser cannot play the clip, which is as the camera sent it. Save it, and open it in a player such as VLC."
    : "The clip is no longer there.";
  $("save").hidden = !answer?.ok;
  $("clip").hidden = true;
  $("no-clip").hidden = false;
}
/* The row that has the focus, or the one before or after it. */
function eventAt(move) {
  const rows = [...$("event-rows").children], at = rows.findIndex((row) => row.contains(document.activeElement));
  return move === 0 ? rows[at] : rows[at < 0 ? (move > 0 ? 0 : -1) : at + move];
}
function refill(select, all, values) {
  const kept = select.value;
  select.replaceChildren(new Option(all, ""), ...values.map((value) => new Option(value, value)));
  if (kept && !values.includes(kept)) select.append(new Option(kept, kept));
  select.value = kept;
}
function fillFilters() {
  refill($("by-source"), "All sources", [...sources.keys()]);
  refill($("by-action"), "All actions", [...new Set([...sources.values()].flatMap((source) => source.classes))].filter((label) => !report.undecidable.includes(label)));
}
function buildEvents() {
  for (const id of ["by-action", "by-source", "by-day", "by-score"]) {
    $(id).addEventListener("change", () => askEvents(false));
  }
  $("by-score").addEventListener("input", () => { $("by-score-value").textContent = Number($("by-score").value).toFixed(2); });
  $("show-all").addEventListener("click", () => {
    for (const id of ["by-action", "by-source", "by-day"]) $(id).value = "";
    $("by-score").value = 0;
    $("by-score-value").textContent = "0.00";
    askEvents(false);
  });
  $("older").addEventListener("click", () => askEvents(true));
  $("player-close").addEventListener("click", () => $("player").close());
  $("player").addEventListener("close", () => closeMedia($("clip")));
  $("clip").addEventListener("error", showUnplayable);
  $("clip").addEventListener("loadedmetadata", () => { if (!$("clip").videoWidth) showUnplayable(); });
}
