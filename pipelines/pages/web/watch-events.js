/* The list of events: active ones first, then the latest; filters, verdicts, clips. */
const PAGE = 50, RECENT = 600e3; /* rows at a time; milliseconds that events stay in the lanes */
const ALL = { action: "", source: "", day: "", score: 0 };
const shownEvents = new Map(); /* id to event, of what the filters leave */
let wanted = { ...ALL }, asked = 0, atEnd = false, focused = null, clip = null; /* clip: {event, trouble} that is open */

const isOn = (event) => !event.end;
const newestFirst = (one, other) => isOn(other) - isOn(one) || wallOf(other.start) - wallOf(one.start) || (one.id < other.id ? 1 : -1);
const fits = (event) => (!wanted.action || event.action === wanted.action) && (!wanted.source || event.source === wanted.source)
  && (!wanted.day || event.start.slice(0, 10) === wanted.day) && event.top_score >= wanted.score;
function secondsText(seconds) {
  if (seconds < 60) return (seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)) + " s";
  return clockText(seconds, 0) + (seconds < 3600 ? " min" : " h");
}
const today = (text) => text.slice(0, 10) === nowText().slice(0, 10);
function whenText(event) {
  const day = today(event.start) ? "" : event.start.slice(0, 10) + " ";
  const seconds = isOn(event) ? Math.max(event.seconds, (wallOf(nowText()) - wallOf(event.start)) / 1000) : event.seconds;
  const length = secondsText(seconds) + (isOn(event) ? " so far" : event.still_active ? ", until its source ended" : "");
  return day + lastTime(event.start) + " · " + length + " · score " + scoreText(event.top_score);
}

function EventRow({ event, isFirst }) {
  const picture = event.picture ? html`<img loading="lazy" alt="" src=${"thumb/" + event.id} />` : "Clip";
  const mark = (look, verdict, name) => html`<${Button} class=${look} aria-label=${name} title=${name} aria-pressed=${event.verdict === verdict} onClick=${() => judge(event.id, verdict)} />`;
  return html`<li class=${isOn(event) ? "event on" : "event"} style=${spotStyle(event.action)} tabindex=${focused === event.id || isFirst ? 0 : -1} data-id=${event.id} onfocusin=${() => { focused = event.id; showEvents(); }}>
    <${Spot} label=${event.action} />
    <p class="what">${event.action}<span class="soft">in ${event.source}</span></p><p class="when">${whenText(event)}</p>
    <div class="marks">${mark("yes", "right", "Right: it happened (r)")}${mark("no", "wrong", "Wrong: it did not happen (w)")}</div>
    ${event.clip ? html`<${Button} class="thumb" aria-label="Play the clip (c)" onClick=${() => play(event.id)}>${picture}<//>` : event.picture && html`<div class="thumb">${picture}</div>`}
  </li>`;
}
function Events() {
  const order = [...shownEvents.values()].sort(newestFirst), on = order.filter(isOn).length, isFiltered = Object.values(wanted).some(Boolean);
  const choose = (name) => ({ target }) => askFor({ ...wanted, [name]: name === "score" ? Number(target.value) : target.value });
  const choices = (all, values, kept) => options([["", all], ...[...new Set([...values, kept])].filter(Boolean).map((value) => [value])]);
  const actions = [...sources.values()].flatMap((source) => actionsOf(source).map((index) => source.classes[index]));
  return html`
  <div class="heading">
    <h2 id="count">${on ? "Events, " + on + " active" : "Events"}</h2>
    <div class="filters">
      <select id="by-action" aria-label="Action" value=${wanted.action} onChange=${choose("action")}>${choices("All actions", actions, wanted.action)}</select>
      <select id="by-source" aria-label="Source" value=${wanted.source} onChange=${choose("source")}>${choices("All sources", sources.keys(), wanted.source)}</select>
      <input type="date" id="by-day" aria-label="Day" value=${wanted.day} onChange=${choose("day")} />
      <label class="slider"><span>Minimum score</span> <input type="range" id="by-score" min="0" max="1" step="0.05" value=${wanted.score} onInput=${choose("score")} /><output for="by-score">${wanted.score.toFixed(2)}</output></label>
      ${isFiltered && html`<${Button} id="show-all" onClick=${() => askFor(ALL)}>Show all<//>`}
    </div>
  </div>
  <ol id="event-rows">${order.map((event, at) => html`<${EventRow} key=${event.id} event=${event} isFirst=${!at && !shownEvents.has(focused)} />`)}</ol>
  <p id="no-events" class="soft" hidden=${order.length > 0}>${isFiltered ? "No event matches. Choose another action, source or day, or a lower score."
    : sources.size ? "No event yet." : "No event yet: add a source first."}</p>
  <p class="older"><${Button} id="older" hidden=${atEnd} onClick=${() => askEvents(true)}>Older events<//></p>`;
}
const showEvents = () => render(html`<${Events} />`, $("events"));
function askFor(filters) {
  wanted = { ...filters };
  showEvents();
  askEvents(false);
}
/* Load the events that match the filters, or only `older` events than the listed ones. */
async function askEvents(older) {
  const number = ++asked, oldest = [...shownEvents.values()].filter((event) => !isOn(event)).sort(newestFirst).at(-1);
  const query = new URLSearchParams({ limit: PAGE });
  for (const [key, value] of Object.entries(wanted)) if (value) query.set(key, value);
  if (older && oldest) query.set("before", oldest.id);
  const answer = await fetch("events?" + query).catch(() => null);
  if (number !== asked) return;
  if (!answer?.ok) return notify("The events could not be read.");
  const { events } = await answer.json();
  if (!older) shownEvents.clear();
  atEnd = events.length < PAGE;
  for (const event of events) { shownEvents.set(event.id, event); keepInLane(event); }
  for (const source of sources.values()) {
    for (const event of source.events) if (isOn(event) && fits(event)) shownEvents.set(event.id, event);
    showSource(source);
  }
  showEvents();
}
/* Keep an event in the lanes of its source, for as long as they reach. */
function keepInLane(event) {
  const source = sources.get(event.source);
  if (!source) return;
  const least = Math.max(source.at || 0, wallOf(event.seen)) - RECENT;
  source.events = source.events.filter((one) => one.id !== event.id && (isOn(one) || wallOf(one.end) > least));
  if (isOn(event) || wallOf(event.end) > least) source.events.push(event);
  showSource(source);
}
function readEvent({ phase, event }) {
  keepInLane(event);
  if (fits(event) && (phase !== "update" || shownEvents.has(event.id))) shownEvents.set(event.id, event);
  else shownEvents.delete(event.id);
  const over = [...shownEvents.values()].sort(newestFirst).slice(20 * PAGE); /* a page that is open for weeks */
  for (const { id } of over) shownEvents.delete(id);
  if (over.length) atEnd = false;
  showEvents();
  const words = event.action + " in " + event.source;
  if (phase === "new") $("announced").textContent = words + ", " + lastTime(event.start) + ", score " + scoreText(event.score);
  if (phase === "end") $("announced").textContent = words + " has ended after " + secondsText(event.seconds);
}
function judge(id, verdict) {
  const event = shownEvents.get(id);
  if (event) act("event/" + id + "/verdict", { verdict: event.verdict === verdict ? "" : verdict }, ({ event: judged }) => readEvent({ phase: "update", event: judged }));
}
/* The row that has the focus, or the one before or after it. */
function eventAt(move) {
  const rows = [...($("event-rows")?.children ?? [])], at = rows.findIndex((row) => row.contains(document.activeElement));
  return move === 0 ? rows[at] : rows[at < 0 ? (move > 0 ? 0 : -1) : at + move];
}

/* The clip of an event, in a dialog. */
function Clip() {
  const { event, trouble, isGone } = clip ?? {}, address = event ? "clip/" + event.id : null;
  const name = event && [event.source, event.action, event.start.slice(0, 19).replaceAll(":", "-")].join(" ") + event.clip.slice(event.clip.lastIndexOf("."));
  return html`
  <div class="heading"><h2 id="player-title">${event && event.action + " in " + event.source + ", " + lastTime(event.start)}</h2>
    ${event && !isGone && html`<a href=${address} download=${name}>Save the clip</a>`}<${Button} onClick=${() => $("player").close()}>Close <kbd>esc</kbd><//></div>
  <video id="clip" controls playsinline muted hidden=${Boolean(trouble)} onError=${clipFailed} onLoadedMetadata=${({ target }) => { if (!target.videoWidth) clipFailed(); }} />
  ${trouble && html`<p id="no-clip" role="alert">${trouble}</p>`}`;
}
function showClip(next) {
  clip = next;
  render(html`<${Clip} />`, $("player"));
}
function play(id) {
  const event = shownEvents.get(id);
  if (!event?.clip) return notify("This event has no clip.");
  showClip({ event });
  $("clip").src = "clip/" + id;
  $("player").showModal();
  return $("clip").play().catch(() => {}); /* where a browser waits for a press */
}
/* A clip is kept as the camera sent it, in a codec that not every browser knows (HEVC): some show black then, some nothing. */
async function clipFailed() {
  const failing = clip, answer = clip && (await fetch("clip/" + clip.event.id, { method: "HEAD" }).catch(() => null));
  if (!failing || clip !== failing) return;
  const trouble = answer?.ok ? "This browser cannot play the clip, which has the camera's format. Save it, and open it in a player such as VLC." : "The clip was deleted, or the service keeps no clips any more.";
  showClip({ ...clip, trouble, isGone: !answer?.ok });
}
