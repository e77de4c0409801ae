/* The scored videos: one at a time with its lanes, and the errors of all videos, with a key for the next one. */
const { models, classes, actions } = report;
const step = 0.25; /* seconds that an arrow key goes */
const NAMES = { missed: "missed", false: "false alarm" };
const FULL_SCALE = 254, NO_SCORE = 255;
let model = 0, which = "", sought = ""; /* the checkpoint, which of its errors are shown, which videos are listed */
let videos = [], errors = [], shown = null, chosen = -1, spokenError = ""; /* chosen: the place of an error; spokenError: its text for a screen reader */

const spanOf = ([label, start, end, verdict, ...more]) => ({ label: classes[label], start, end, verdict, kind: more.at(-1) });
const errorsOf = (video) => [...video.labels, ...video.detections].map(spanOf).filter(({ verdict }) => verdict in NAMES).sort(byStart);
const wholeSeconds = () => Math.max(step, shown.duration);
const clock = (time, digits = 2) => clockText(time, digits, shown.duration >= 3600);
const spoken = ({ verdict, kind, label, start, end }) => NAMES[verdict] + ", " + label + ", " + clock(start) + " to " + clock(end) + " (" + kind + ")";
const keysOf = ({ verdict, kind, label }) => ["", verdict, "~" + kind, "=" + label]; /* what an error is chosen by */

function pickModel(at) {
  const before = shown && shown.id;
  model = at;
  videos = models[at].videos;
  for (const video of videos) video.errors ??= errorsOf(video);
  if (!whichOptions().some(([value]) => value === which)) which = "";
  pickErrors(which);
  if (videos.length) show(videos.find(({ id }) => id === before) ?? videos[0]);
}
function whichOptions() {
  const kinds = [...new Set(videos.flatMap((video) => video.errors.map(({ kind }) => kind)))].sort();
  const all = [["", "All errors"], ["missed", "Missed"], ["false", "False alarms"], ...kinds.map((kind) => ["~" + kind, kind[0].toUpperCase() + kind.slice(1)]), ...actions.map((label) => ["=" + label, label])];
  return all.flatMap(([value, text]) => {
    const count = videos.reduce((sum, video) => sum + video.errors.filter((error) => keysOf(error).includes(value)).length, 0);
    return count || !value ? [[value, text + " (" + numberText(count) + ")"]] : [];
  });
}
function pickErrors(wanted) {
  which = wanted;
  errors = videos.flatMap((video) => video.errors.filter((error) => keysOf(error).includes(which)).map((error) => ({ ...error, video })));
  letGo();
}
function letGo() {
  chosen = -1;
  spokenError = errors.length ? "" : "No error";
  draw();
}
function show(video) {
  shown = video;
  now = 0;
  const trouble = video.video ? null : ["No video here", video.id + " is not where it was when its features were computed. The timeline works without it."];
  video.lanes ??= Object.entries(video.curves).map(([index, text]) => laneOf(video, classes[index], text));
  openFilm({ address: video.video, name: video.id, ahead: video.ahead, trouble });
  lookAtAll();
}
/* A class with a label or a detection; its curve has the highest score of each stretch of the video. */
function laneOf(video, label, text) {
  const codes = bytesOf(text), begin = video.begin || 0;
  const chunk = (video.duration - begin) / Math.max(1, video.chunks), each = Math.ceil(video.chunks / Math.max(1, codes.length)) * chunk;
  const spans = (entries, verdict) => spansOf(entries.map(spanOf).filter((entry) => entry.label === label && entry.verdict === verdict));
  const curve = { codes, first: 0, count: codes.length, begin, step: each, fullScale: FULL_SCALE, missing: NO_SCORE };
  return {
    label, curve, solid: spans(video.detections, "found"), isFalse: spans(video.detections, "false"), faint: spans(video.detections, "excluded"),
    found: spans(video.labels, "found"), missed: spans(video.labels, "missed"),
  };
}

/* From error to error. */
function choose(place) {
  const error = errors[place];
  if (error.video !== shown) show(error.video);
  chosen = place;
  spokenError = "Error " + numberText(place + 1) + " of " + numberText(errors.length) + ": " + spoken(error) + " in " + shown.id;
  draw();
  seekTo(error.start);
}
/* Without a chosen one, from the cursor on. After the last comes the first. */
function seekError(direction) {
  if (!errors.length) return;
  const order = videos.indexOf(shown), after = ({ video, start }) => (videos.indexOf(video) - order || start - now) >= -1e-3;
  const next = errors.findIndex(after), from = chosen >= 0 ? chosen : next < 0 ? errors.length : next;
  const to = chosen < 0 && direction > 0 ? from : from + direction;
  choose((to + errors.length) % errors.length);
}
function seekTo(time) {
  now = Math.max(0, Math.min(shown.duration, time));
  seekFilm();
  lookAtCursor();
}
/* A press of the pointer deselects the error. */
function seek(time) {
  letGo();
  seekTo(time);
}
function playOn() {
  playing = watchable && !$("video").paused;
  if (playing) now = filmTime();
  return playing;
}
function showMoment() { $("clock").textContent = clock(now) + " / " + clock(shown.duration); }
const momentText = () => clock(now) + " of " + shown.id;

const LaneRow = ({ lane }) => html`<${Lane} content=${() => ({ colour: colourOf(lane.label), ...lane })}>
  <div class="name" title=${lane.label}><${Spot} label=${lane.label} /><span class="cut">${lane.label}</span></div><//>`;
const ErrorRow = ({ error, place }) => html`<li><${Button} aria-current=${place === chosen ? "true" : null} aria-label=${spoken(error)} onClick=${() => choose(place)}>
  <${Spot} label=${error.label} look=${error.verdict === "missed" ? "hollow" : "hatched"} /><span class="cut kind">${NAMES[error.verdict] + ": " + error.kind}</span>
  <span class="cut">${error.label}</span><span class="when">${clock(error.start) + " – " + clock(error.end)}</span><//></li>`;
function VideoRow({ video }) {
  const missed = video.labels.filter(({ 3: verdict }) => verdict === "missed").length, alarms = video.errors.length - missed;
  const words = [video.labels.length ? video.labels.length - missed + " of " + video.labels.length + " found" : "no label"];
  if (alarms) words.push(countText(alarms, "false alarm"));
  return html`<li><${Button} aria-current=${video === shown ? "true" : null} onClick=${() => { show(video); letGo(); }}>
    <span class="cut">${video.id}</span><span class=${video.errors.length ? "when wrong" : "when"}>${words.join(", ")}</span><//></li>`;
}
function Watching() {
  const own = errors.map((error, place) => ({ error, place })).filter(({ error }) => error.video === shown);
  const listed = videos.filter(({ id }) => id.toLowerCase().includes(sought));
  return html`
  <div class="heading">
    <h2>${countText(videos.length, report.held_out ? "held-out video" : "video")}, most errors first</h2>
    ${models.length > 1 && html`<select id="model" aria-label="Checkpoint" onChange=${({ target }) => pickModel(Number(target.value))}>${options(models.map(({ name }, at) => [at, name]))}</select>`}
    <select id="which" aria-label="Which errors" value=${which} onChange=${({ target }) => pickErrors(target.value)}>${options(whichOptions())}</select>
    <div class="buttons">
      <${ErrorButtons} disabled=${!errors.length} act=${seekError} />
    </div>
  </div>
  <div class="player">
    <div class="seen">
      <${Film} label="The video" controls muted onSeeked=${() => { if (watchable) { now = filmTime(); moved = true; } schedule(); }} />
      <p class="moment"><output id="clock" aria-live="off" /><span id="error" role="status">${spokenError}</span></p>
    </div>
    <div class="timeline">
      <div hidden=${!shown.lanes.length}><${Lanes}>${shown.lanes.map((lane) => html`<${LaneRow} key=${shown.id + " " + lane.label} lane=${lane} />`)}<//></div>
      ${!shown.lanes.length && html`<p id="nothing" class="soft">Nothing is labelled in this video, and nothing was detected.</p>`}
      <${Legend} entries=${[["curve", "score"], ["", "found"], ["false", "false alarm"], ["truth", "labelled"], ["missed", "labelled, missed"]]}><${Zoom} /><//>
    </div>
    <div class="lists">
      <div class="list"><h3 id="of-errors">${own.length ? countText(own.length, "error") : "No error"} in ${shown.id}</h3>
        <ol id="errors" class="lines">${own.map(({ error, place }) => html`<${ErrorRow} key=${place} error=${error} place=${place} />`)}</ol></div>
      <div class="list"><h3><span>${listed.length === videos.length ? "Videos" : numberText(listed.length) + " of " + countText(videos.length, "video")}</span>
        ${videos.length >= 8 && html`<input type="search" id="find" placeholder="Find a video" aria-label="Find a video" onInput=${({ target }) => { sought = target.value.trim().toLowerCase(); draw(); }} />`}</h3>
        <ul id="videos" class="lines">${listed.map((video) => html`<${VideoRow} key=${video.id} video=${video} />`)}</ul></div>
    </div>
  </div>`;
}
function draw() {
  if (!shown) return;
  render(html`<${Watching} />`, $("app"));
  bringCurrent($("errors"));
}

onKeys((event) => {
  if (!shown) return {};
  const jump = event.shiftKey ? 1 : step;
  return {
    x: () => seekError(1), X: () => seekError(-1), ...zoomKeys, " ": () => watchable && toggleFilm(),
    ArrowLeft: () => seekTo(now - jump), ArrowRight: () => seekTo(now + jump),
    ...(event.target === $("surface") && { Home: () => seekTo(0), End: () => seekTo(shown.duration) }),
  };
});
followTheme(redraw);
pickModel(0);
