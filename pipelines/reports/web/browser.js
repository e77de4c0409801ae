/* The page that runs a model: what the thread has decided goes into lanes and lists; then everything begins. */
const video = $("video");
const SHOWN_EVENTS = 300, LIVE_SECONDS = 60, NEARLY_ALL = 0.85;
let ready = false, running = false, following = true, isCamera = false, manner = "", sourceName = "", startedAt = 0, shown = -2, gone = 0, seen = "";

function frame() {
  frameAsked = false;
  if (!video.paused && !isCamera && !video.hidden) {
    now = Math.min(video.currentTime, duration);
    moved = true;
    if (now > view[1] || now < view[0]) look(now - 0.08 * (view[1] - view[0]), view[1] - view[0]);
  }
  if (moved) showMoment();
  if (axisDirty) drawTimes($("axis").firstElementChild, view, duration);
  axisDirty = false;
  for (const lane of lanes) if (lane.seen && lane.dirty && !lane.row.hidden) drawLane(lane);
  if (!video.paused && !isCamera) schedule();
}
function showMoment() {
  moved = false;
  $("cursor").style.transform = "translateX(" + (now - view[0]) / (view[1] - view[0]) * $("surface").clientWidth + "px)";
  $("clock").textContent = sourceName ? clock(now) + " / " + clock(duration) : "";
  drawOverview();
  const chunk = chunkAt(now >= decided && now < decided + 1e-6 ? Math.max(0, decided - step / 2) : now), best = ranked(chunk, 3);
  if (chunk !== shown) {
    $("chunk").textContent = !sourceName ? "" : !decided || chunk < 0 || codeAt(0, chunk) === missing ? "No decision here" : "Decision " + numberText(chunk + 1) + " · made at " + clock((chunk + 1) * step);
    showRanked(best);
    showScores(chunk, best);
  }
  /* a screen reader hears of each step, but not of each frame */
  if (chunk !== shown || (video.paused && !running)) {
    $("surface").setAttribute("aria-valuenow", now.toFixed(2));
    $("surface").setAttribute("aria-valuemax", duration.toFixed(2));
    $("surface").setAttribute("aria-valuetext", clock(now) + ", " + $("decision").textContent + " " + $("decision-score").textContent);
  }
  shown = chunk;
}
function seek(time) {
  following = false;
  now = Math.max(0, Math.min(duration, time));
  if (!isCamera && video.readyState) video.currentTime = now;
  if (now < view[0] || now > view[1]) look(now - (view[1] - view[0]) / 2, view[1] - view[0]);
  moved = true;
  schedule();
}
function toggle() {
  if (isCamera || video.hidden) return;
  if (video.paused) video.play().catch(() => {}); else video.pause();
}
function leave() { $("tip").hidden = $("pointer").hidden = true; }
function hover(event) {
  if (event.pointerType === "touch") return;
  const time = timeAt($("surface"), event.clientX, view), tip = $("tip");
  const rows = ranked(chunkAt(time), 3).map(({ index, score }) => {
    const row = make("div");
    row.append(spot(classes[index]), make("span", "cut", classes[index]), make("span", "", scoreText(score)));
    return row;
  });
  tip.replaceChildren(make("b", "", clock(time)), ...(rows.length ? rows : [make("div", "soft", "no decision")]));
  tip.hidden = $("pointer").hidden = false;
  $("pointer").style.transform = "translateX(" + (event.clientX - $("surface").getBoundingClientRect().left) + "px)";
  const box = tip.getBoundingClientRect();
  tip.style.transform = "translate(" + Math.max(4, Math.min(event.clientX + 16, innerWidth - box.width - 8)) + "px," + Math.min(event.clientY + 14, innerHeight - box.height - 8) + "px)";
}

/* All that depends on decisions. */
function refresh() {
  overview = null;
  fillLanes();
  for (const lane of lanes) lane.foreseen = expected.filter(({ label }) => label === names[lane.index]);
  $("legend-gap").hidden = !gaps.length;
  $("lines").disabled = !lines.length;
  $("segments-csv").disabled = !segments.length;
  showFacts();
  redraw();
}
function showFacts() {
  $("facts").replaceChildren();
  if (!sourceName) return;
  const made = lines.filter((line) => "chunk" in line).length, dropped = lines.reduce((sum, { gap, chunks: lost }) => sum + (gap ? lost : 0), 0);
  if (seen) term($("facts"), "Seen", seen);
  term($("facts"), "Decisions", numberText(made));
  term($("facts"), "Segments", numberText(segments.length));
  if (dropped) term($("facts"), "Chunks missing", numberText(dropped));
}
/* The part of pictures of a shape, width by height, that the networks see, where that is much less than of those that
   they learnt from; by the rule of lstr/pipelines/detection/warnings.py. */
function partSeen(shape) {
  const shares = report.streams.filter((part) => part.short_side === null).map(({ size: [down, across] }) => across / down / shape);
  const across = Math.min(1, ...shares), down = Math.min(1, ...shares.map((share) => 1 / share)), least = Math.min(across, down);
  return least < NEARLY_ALL ? "the middle " + Math.round(100 * least) + " % of the " + (across < down ? "width" : "height") : "";
}
const verbs = { started: "started", ended: "ended", expected: "expected", lapsed: "did not come" };
function listEvents(events) {
  for (const event of events) {
    const item = make("li"), button = make("button"), what = make("span", "what");
    button.type = "button";
    what.append(spot(event.label), make("span", "cut", event.label));
    button.append(make("span", "", clock(event.time)), what, make("span", "kind", event.still_on ? "still on" : verbs[event.event]), make("span", "mean", scoreText(event.score)));
    button.addEventListener("click", () => seek(event.start));
    item.append(button);
    $("events").prepend(item);
    if ($("events").childElementCount > SHOWN_EVENTS) $("events").lastElementChild.remove();
  }
  $("none").hidden = $("events").childElementCount > 0;
}

function failed(what, hint) {
  const text = make("div");
  text.append(make("b", "", what), " " + hint);
  $("warnings").replaceChildren(text);
  $("warnings").hidden = false;
}
/* A source is chosen; it is open; it is over. */
function begun(name, text) {
  [sourceName, isCamera, running, following, shown, gone, seen] = [name, name === "Webcam" && !text, true, true, -2, 0, ""];
  now = 0;
  forget(LEAST_CHUNKS * step);
  $("events").replaceChildren();
  listEvents([]);
  $("warnings").hidden = true;
  $("drop").hidden = true;
  video.hidden = $("stop").hidden = $("card").hidden = false;
  $("play").hidden = isCamera;
  document.title = name + " – " + report.title;
  $("state").textContent = text;
  lookAtAll();
  refresh();
}
function opened(seconds, how) {
  [manner, startedAt] = [how, performance.now()];
  forget(isCamera ? LIVE_SECONDS : seconds);
  lookAtAll();
  refresh();
}
function ended() {
  running = false;
  $("stop").hidden = true;
  for (const segment of segments) segment.open = false;
  refresh();
}
function progressText() {
  const spent = (performance.now() - startedAt) / 1000;
  if (isCamera) return "Live: decided " + numberText(Math.round(gone)) + " ms after the last picture of a chunk.";
  const speed = spent > 0.5 ? " · " + numberText(Number((decided / spent).toPrecision(2))) + " times real time" : "";
  return (running ? "Decided " + clock(decided, 0) + " of " + clock(duration, 0) : "Decided on " + clock(decided, 0)) + speed + " · decoded " + manner + ".";
}

const answers = {
  graph({ graph }) { $("state").textContent = "Opened " + graph + " …"; },
  ready({ needed: frames }) {
    [ready, needed] = [true, new Set(frames)];
    $("state").textContent = "";
    for (const id of ["file", "choose", "camera"]) $(id).disabled = false;
  },
  opened: ({ seconds }) => opened(seconds, "frame by frame"),
  undecodable: ({ run: own }) => stepThrough(fileOpen, own),
  taken: () => onTaken(),
  decided(message) {
    [gone, seen] = [message.line.latency_ms, partSeen(message.shape)];
    takeDecision(message);
    listEvents(message.events);
    if (following) {
      now = decided;
      if (view[1] - view[0] < duration || isCamera) look(Math.max(0, decided - LIVE_SECONDS), isCamera ? LIVE_SECONDS : view[1] - view[0]);
    }
    $("state").textContent = progressText();
    refresh();
  },
  ended({ events }) {
    takeEvents(events);
    listEvents(events);
    ended();
    if (following && !isCamera) lookAtAll();
    $("state").textContent = progressText();
  },
  damaged({ text }) { failed(sourceName + " is damaged: " + text + ".", "What was decided until there stays."); },
  failed({ text }) {
    ended();
    failed("The model cannot be run here: " + text + ".", "Load the page again; if it stays so, use a newer browser.");
  },
};
worker.addEventListener("message", ({ data }) => {
  if (data.run !== undefined && data.run !== run) return;
  answers[data.kind](data);
});
worker.addEventListener("error", (event) => answers.failed({ text: event.message || "its scripts cannot be loaded" }));

function describe() {
  document.title = report.title;
  const facts = $("run");
  term(facts, "Model", report.title, "wide");
  term(facts, "Detects", classes.filter((_, index) => report.rules[index]).join(", "), "wide");
  term(facts, "Sees", report.streams.map(({ stream, size: [height, width] }) => stream + " " + width + " × " + height).join(", "), "wide");
  term(facts, "Runs by", "ONNX Runtime Web " + report.runtime + ", " + countText(report.threads, "thread") + (report.threads > 1 ? "" : ": its server sends no headers that allow more"), "wide");
  term(facts, "Sends", "nothing: pictures and scores stay in this browser", "wide");
  $("legend-expected").hidden = !report.step.ahead;
}
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && /^(BUTTON|INPUT|A)$/.test(event.target.tagName)) return;
  const actions = {
    " ": toggle, o: () => ready && $("file").click(),
    ArrowLeft: () => seek(event.shiftKey ? now - 1 : (Math.ceil(now / step - 1e-6) - 1) * step),
    ArrowRight: () => seek(event.shiftKey ? now + 1 : (Math.floor(now / step + 1e-6) + 1) * step),
    ...zoomKeys, ...(event.target === $("surface") && { Home: () => seek(0), End: () => seek(duration) }),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}
function takeDrop(event) {
  event.preventDefault();
  $("drop").classList.remove("over");
  const [file] = event.dataTransfer.files;
  if (file && ready) openFile(file);
}

report.threads = globalThis.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency || 1) : 1;
describe();
forget(LEAST_CHUNKS * step);
buildLanes();
buildZoom();
followTheme(() => { overview = null; axisDirty = true; redraw(); });
showLanes();
lookAtAll();
refresh();
scrub($("surface"), () => view, true);
scrub($("axis"), () => view);
scrub($("overview"), () => [0, duration]);
$("surface").addEventListener("pointermove", hover);
for (const kind of ["pointerleave", "pointercancel"]) $("surface").addEventListener(kind, leave);
$("plot").addEventListener("wheel", wheel, { passive: false });
$("play").addEventListener("click", toggle);
$("stop").addEventListener("click", () => stopCurrent());
$("choose").addEventListener("click", () => $("file").click());
$("camera").addEventListener("click", openCamera);
$("file").addEventListener("change", () => { if ($("file").files[0]) openFile($("file").files[0]); $("file").value = ""; });
$("lines").addEventListener("click", () => download(stemOf(sourceName) + ".jsonl", lines.map((line) => JSON.stringify(line) + "\n").join(""), "application/x-ndjson"));
$("segments-csv").addEventListener("click", () => download(stemOf(sourceName) + ".csv", toCsv([{ id: stemOf(sourceName), duration, segments }]), "text/csv"));
const stemOf = (name) => name.replace(/\.[^.]*$/, "");
for (const kind of ["play", "pause", "ended"]) video.addEventListener(kind, () => {
  $("play").setAttribute("aria-label", video.paused ? "Play" : "Pause");
  $("play").querySelector("path").setAttribute("d", video.paused ? "M3 1.5v11l9-5.5z" : "M3 1.5h3v11H3zM8.5 1.5h3v11h-3z");
  if (!video.paused && !isCamera) following = false;
  schedule();
});
video.addEventListener("click", toggle);
for (const kind of ["dragenter", "dragover"]) document.addEventListener(kind, (event) => { event.preventDefault(); $("drop").classList.add("over"); });
document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
document.addEventListener("drop", takeDrop);
document.addEventListener("keydown", key);
new ResizeObserver(() => { widenNames(); axisDirty = true; redraw(); }).observe($("plot"));
if (typeof WebAssembly === "undefined") failed("This browser has no WebAssembly, which runs the model.", "Use a newer one, or allow it in its settings.");
else tell({ kind: "open", report });
