/* The scored videos, one at a time beside its lanes; and the errors of all of them, from one to the next by a key. */
const { models, classes, actions } = report;
const player = $("video"), surface = $("surface");
const step = 0.25; /* seconds that an arrow key goes */
const NAMES = { missed: "missed", false: "false alarm" };
const [FULL_SCALE, NO_SCORE] = [254, 255];
let videos = [], errors = []; /* of the checkpoint shown; errors as far as they are chosen to be shown */
let shown = null, chosen = -1; /* the video, and the place of an error */
let lanes = [], watchable = false, playing = false, frameAsked = false;

const spanOf = ([label, start, end, verdict, ...more]) => ({ label: classes[label], start, end, verdict, kind: more.at(-1) });
const isError = ({ verdict }) => verdict in NAMES;
const byStart = (one, other) => one.start - other.start || one.end - other.end;
const errorsOf = (video) => [...video.labels, ...video.detections].map(spanOf).filter(isError).sort(byStart);
const shownNow = () => Math.max(0, Math.min(player.currentTime - shown.ahead, shown.duration)); /* ahead: of pictures that begin after the sound */
const clock = (time, digits = 2) => clockText(time, digits, shown.duration >= 3600);
const spoken = ({ verdict, kind, label, start, end }) => NAMES[verdict] + ", " + label + ", " + clock(start) + " to " + clock(end) + " (" + kind + ")";
const keysOf = ({ verdict, kind, label }) => ["", verdict, "~" + kind, "=" + label]; /* what an error is chosen by */
const wanted = (error) => keysOf(error).includes($("which").value);

/* The checkpoint, and which of its errors. */
function pickModel() {
  const before = shown && shown.id;
  videos = models[Number($("model").value) || 0].videos;
  for (const video of videos) video.errors ??= errorsOf(video);
  $("watched").textContent = countText(videos.length, report.held_out ? "held-out video" : "video") + ", most errors first";
  const kinds = [...new Set(videos.flatMap((video) => video.errors.map(({ kind }) => kind)))].sort();
  const options = [["", "All errors"], ["missed", "Missed"], ["false", "False alarms"], ...kinds.map((kind) => ["~" + kind, kind[0].toUpperCase() + kind.slice(1)]), ...actions.map((label) => ["=" + label, label])];
  const kept = $("which").value;
  $("which").replaceChildren(...options.flatMap(([value, text]) => {
    const count = videos.reduce((sum, video) => sum + video.errors.filter((error) => keysOf(error).includes(value)).length, 0);
    return count || !value ? [option(value, text + " (" + numberText(count) + ")")] : [];
  }));
  $("which").value = [...$("which").options].some(({ value }) => value === kept) ? kept : "";
  pickErrors();
  listVideos();
  if (videos.length) show(videos.find(({ id }) => id === before) ?? videos[0]);
}
function pickErrors() {
  errors = videos.flatMap((video) => video.errors.filter(wanted).map((error) => ({ ...error, video })));
  errors.forEach((error, place) => { error.place = place; });
  chosen = -1;
  if (shown) listErrors();
}

/* One video: its picture, a lane for each class with a label or a detection, its errors. */
function show(video) {
  shown = video;
  now = 0;
  surface.setAttribute("aria-valuemax", video.duration.toFixed(2));
  openVideo();
  const entries = { labels: video.labels.map(spanOf), detections: video.detections.map(spanOf) };
  for (const { row } of lanes) row.remove();
  lanes = Object.entries(video.curves).map(([index, text]) => makeLane(classes[index], text, entries));
  $("lanes").append(...lanes.map(({ row }) => row));
  $("axis").hidden = $("lanes").hidden = !lanes.length;
  $("nothing").hidden = lanes.length > 0;
  for (const button of $("videos").querySelectorAll("button")) {
    if (button.video === video) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
  }
  listErrors();
  lookAtAll();
}
function makeLane(label, text, { labels, detections }) {
  const row = make("div", "lane"), name = make("div", "name"), plot = make("div", "strip"), canvas = make("canvas");
  const of = (entries, verdict) => entries.filter((entry) => entry.label === label && entry.verdict === verdict).map(({ start, end }) => [start, end]);
  name.append(spot(label), make("span", "cut", label));
  name.title = label;
  canvas.setAttribute("aria-hidden", "true");
  plot.append(canvas);
  row.append(name, plot);
  return {
    row, canvas, label, codes: Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)),
    found: of(detections, "found"), false: of(detections, "false"), leftOut: of(detections, "left out"),
    labelled: of(labels, "found"), missed: of(labels, "missed"),
  };
}
function openVideo() {
  const message = $("no-video"), address = shown.video;
  watchable = false;
  player.hidden = !address;
  message.hidden = Boolean(address);
  message.replaceChildren(make("b", "", "No video here"), shown.id + " is not where it was when its features were computed. The lanes work without it.");
  if (address) player.src = address; else closeMedia(player);
}
function cannotPlay() {
  if (!player.getAttribute("src")) return;
  watchable = false;
  player.hidden = true;
  $("no-video").hidden = false;
  $("no-video").replaceChildren(make("b", "", "This browser cannot play " + shown.id), "The file may have moved, or its coding is not one the browser knows. The lanes work without it.");
}
function listErrors() {
  const own = errors.filter(({ video }) => video === shown);
  $("of-errors").textContent = own.length ? countText(own.length, "error") + " in " + shown.id : "No error in " + shown.id;
  $("errors").replaceChildren(...own.map((error) => {
    const item = make("li"), button = make("button");
    button.type = "button";
    button.place = error.place;
    button.append(spot(error.label, error.verdict === "missed" ? "spot hollow" : "spot hatched"), make("span", "kind", NAMES[error.verdict] + ": " + error.kind),
      make("span", "cut", error.label), make("span", "when", clock(error.start) + " – " + clock(error.end)));
    button.setAttribute("aria-label", spoken(error));
    button.addEventListener("click", () => choose(error.place));
    item.append(button);
    return item;
  }));
  markError();
}
function listVideos() {
  const sought = $("find").value.trim().toLowerCase();
  $("find").hidden = videos.length < 8;
  const listed = videos.filter(({ id }) => id.toLowerCase().includes(sought));
  $("of-videos").textContent = listed.length === videos.length ? "Videos" : numberText(listed.length) + " of " + countText(videos.length, "video");
  $("videos").replaceChildren(...listed.map((video) => {
    const item = make("li"), button = make("button"), missed = video.labels.filter(({ 3: verdict }) => verdict === "missed").length;
    const alarms = video.errors.length - missed, words = [video.labels.length ? video.labels.length - missed + " of " + video.labels.length + " found" : "no label"];
    if (alarms) words.push(countText(alarms, "false alarm"));
    button.type = "button";
    button.video = video;
    if (video === shown) button.setAttribute("aria-current", "true");
    button.append(make("span", "cut", video.id), make("span", video.errors.length ? "when wrong" : "when", words.join(", ")));
    button.addEventListener("click", () => { chosen = -1; show(video); });
    item.append(button);
    return item;
  }));
}

/* From error to error. */
function choose(place) {
  const error = errors[place];
  if (error.video !== shown) show(error.video);
  chosen = place;
  markError();
  $("error").textContent = "Error " + numberText(place + 1) + " of " + numberText(errors.length) + ": " + spoken(error) + " in " + shown.id;
  seek(error.start);
}
function markError() {
  for (const button of $("errors").querySelectorAll("button")) {
    const on = button.place === chosen;
    if (on) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
    if (on) $("errors").scrollTop = button.offsetTop - $("errors").clientHeight / 2;
  }
  if (chosen < 0) $("error").textContent = errors.length ? "" : "No error";
  $("before").disabled = $("next").disabled = !errors.length;
}
/* Without a chosen one, from the cursor on. After the last comes the first. */
function seekError(direction) {
  if (!errors.length) return;
  const order = videos.indexOf(shown), after = ({ video, start }) => (videos.indexOf(video) - order || start - now) >= -1e-3;
  const next = errors.findIndex(after), from = chosen >= 0 ? chosen : next < 0 ? errors.length : next;
  const to = chosen < 0 && direction > 0 ? from : from + direction;
  choose((to + errors.length) % errors.length);
}

/* The cursor. */
function seek(time) {
  now = Math.max(0, Math.min(shown.duration, time));
  if (watchable) player.currentTime = now + shown.ahead;
  const span = view[1] - view[0];
  if (now < view[0] || now > view[1]) look(now - span / 2, span);
  schedule();
}
const wholeSeconds = () => Math.max(step, shown.duration);
function schedule() {
  if (!frameAsked) requestAnimationFrame(frame);
  frameAsked = true;
}
function redraw() {
  for (const lane of lanes) lane.dirty = true;
  schedule();
}
const viewChanged = redraw;
function frame() {
  frameAsked = false;
  if (!shown) return;
  playing = watchable && !player.paused;
  if (playing) now = shownNow();
  if (playing && (now > view[1] || now < view[0])) look(now, view[1] - view[0]);
  $("cursor").style.transform = "translateX(" + (now - view[0]) / (view[1] - view[0]) * surface.clientWidth + "px)";
  $("clock").textContent = clock(now) + " / " + clock(shown.duration);
  surface.setAttribute("aria-valuenow", now.toFixed(2));
  surface.setAttribute("aria-valuetext", clock(now) + " of " + shown.id);
  if (lanes.some(({ dirty }) => dirty)) drawTimes($("axis").firstElementChild, view, shown.duration);
  for (const lane of lanes) if (lane.dirty) drawLane(lane);
  if (playing) schedule();
}
function drawLane(lane) {
  const { pen, width, height, ratio } = fresh(lane.canvas);
  const toX = (time) => (time - view[0]) / (view[1] - view[0]) * width;
  const labelY = height - 9 * ratio, barY = labelY - 13 * ratio, base = barY - 3 * ratio, top = 4 * ratio;
  pen.fillStyle = pen.strokeStyle = colourOf(lane.label);
  drawCurve(pen, lane.codes, toX, base, base - top, ratio);
  bars(pen, lane.found, toX, barY, 10 * ratio, 2 * ratio);
  pen.fill();
  drawFalse(pen, lane.false, toX, barY, 10 * ratio, ratio);
  pen.globalAlpha = 0.3;
  bars(pen, lane.leftOut, toX, barY, 10 * ratio, 2 * ratio);
  pen.fill();
  pen.globalAlpha = 1;
  drawLabels(pen, lane.labelled, lane.missed, toX, labelY, 6 * ratio, ratio);
  lane.dirty = false;
}
/* Steps, each as high as the highest score in its stretch of the video. */
function drawCurve(pen, codes, toX, base, room, ratio) {
  const begin = shown.begin || 0, chunk = (shown.duration - begin) / Math.max(1, shown.chunks);
  const each = Math.ceil(shown.chunks / Math.max(1, codes.length)) * chunk, line = new Path2D();
  pen.globalAlpha = 0.25;
  codes.forEach((code, index) => {
    if (code === NO_SCORE) return;
    const x = toX(begin + index * each), right = toX(Math.min(begin + (index + 1) * each, shown.duration)), y = base - code / FULL_SCALE * room;
    if (right < 0 || x > pen.canvas.width) return;
    pen.fillRect(x, y, right - x, base - y);
    line[index && codes[index - 1] !== NO_SCORE ? "lineTo" : "moveTo"](x, y);
    line.lineTo(right, y);
  });
  pen.globalAlpha = 1;
  pen.lineWidth = ratio;
  pen.stroke(line);
}

function key(event) {
  const { tagName } = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || tagName === "INPUT" || (tagName === "SELECT" && !/^x$/i.test(event.key))) return;
  if (/^(BUTTON|SUMMARY|A|VIDEO)$/.test(tagName) && event.key === " ") return;
  const jump = event.shiftKey ? 1 : step;
  const acts = {
    x: () => seekError(1), X: () => seekError(-1), ...zoomKeys,
    " ": () => { if (!watchable) return; if (player.paused) player.play().catch(() => {}); else player.pause(); },
    ArrowLeft: () => seek(now - jump), ArrowRight: () => seek(now + jump),
  };
  if (event.target === surface) Object.assign(acts, { Home: () => seek(0), End: () => seek(shown.duration) });
  if (!Object.hasOwn(acts, event.key) || !shown) return;
  event.preventDefault();
  acts[event.key]();
}
function scrub(event) {
  const box = surface.getBoundingClientRect();
  seek(view[0] + Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * (view[1] - view[0]));
}

$("model").append(...models.map(({ name }, index) => option(index, name)));
$("model").hidden = models.length < 2;
followTheme(redraw);
player.addEventListener("error", cannotPlay);
player.addEventListener("loadedmetadata", () => {
  if (!player.videoWidth) return cannotPlay();
  watchable = true;
  player.currentTime = now + shown.ahead;
});
player.addEventListener("play", schedule);
player.addEventListener("seeked", () => { if (watchable) now = shownNow(); schedule(); });
surface.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  surface.setPointerCapture(event.pointerId);
  chosen = -1;
  markError();
  scrub(event);
});
surface.addEventListener("pointermove", (event) => { if (surface.hasPointerCapture(event.pointerId)) scrub(event); });
$("model").addEventListener("change", pickModel);
$("which").addEventListener("change", pickErrors);
$("find").addEventListener("input", listVideos);
for (const [id, act] of [
  ["before", () => seekError(-1)], ["next", () => seekError(1)],
]) $(id).addEventListener("click", act);
buildZoom();
document.addEventListener("keydown", key);
new ResizeObserver(redraw).observe($("plot"));
pickModel();
