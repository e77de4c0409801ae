/* The cursor: the video leads it where it plays, a clock does where it cannot. */
const video = $("video");
const { ahead } = report; /* seconds that its clock is ahead, where the pictures begin after the sound */
const shownNow = () => Math.max(0, Math.min(video.currentTime - ahead, duration));
let watchable = false, playing = false, lastTick = 0, shown = -2;

function frame(tick) {
  frameAsked = false;
  if (playing) {
    const passed = lastTick ? (tick - lastTick) / 1000 * Number($("rate").value) : 0;
    now = watchable ? shownNow() : Math.min(duration, now + passed);
    lastTick = tick;
    moved = true;
    if (!watchable && now >= duration) setPlaying(false);
    if (now > view[1] || now < view[0]) look(now - 0.08 * (view[1] - view[0]), view[1] - view[0]);
  }
  if (moved) showMoment();
  if (axisDirty) drawTimes($("axis").firstElementChild, view, duration);
  placeEdges();
  axisDirty = false;
  for (const lane of lanes) if (lane.seen && lane.dirty && !lane.row.hidden) drawLane(lane);
  if (playing) schedule();
}
function showMoment() {
  moved = false;
  const x = (now - view[0]) / (view[1] - view[0]) * $("surface").clientWidth;
  $("cursor").style.transform = "translateX(" + x + "px)";
  $("clock").textContent = clock(now) + " / " + clock(duration);
  drawOverview();
  const chunk = chunkAt(now);
  if (chunk !== shown) showDecision(chunk);
  /* a screen reader hears of each step, but not of each frame */
  if (chunk !== shown || !playing) {
    $("surface").setAttribute("aria-valuenow", now.toFixed(2));
    $("surface").setAttribute("aria-valuetext", clock(now) + ", " + $("decision").textContent + " " + $("decision-score").textContent);
  }
  shown = chunk;
}
function showDecision(chunk) {
  const best = ranked(chunk, 3);
  $("chunk").textContent = chunk < 0 ? "After the last decision"
    : (gaps.length ? "Chunk " : "Decision ") + numberText(chunk + 1) + " of " + numberText(chunks) + " · made at " + clock(begin + (chunk + 1) * step) + (isLive ? " (" + wall(begin + (chunk + 1) * step) + ")" : "");
  showRanked(best);
  if (truth) {
    const labels = truth.filter(({ start, end }) => start < begin + (chunk + 1) * step && chunk >= 0 && begin + chunk * step < end);
    $("labelled").replaceChildren("Labelled: ", make("b", "", [...new Set(labels.map(({ label }) => label))].join(", ") || "nothing"));
  }
  showScores(chunk, best);
  followRows();
}
function seek(time) {
  now = Math.max(0, Math.min(duration, time));
  if (watchable) video.currentTime = now + ahead;
  if (now < view[0] || now > view[1]) look(now - (view[1] - view[0]) / 2, view[1] - view[0]);
  moved = true;
  schedule();
}
/* The chunk that the keys step from; in the tail, one past the last. */
const stepFrom = () => (chunkAt(now) < 0 ? chunks : Math.floor((now - begin) / step + 1e-6));
function setPlaying(on) {
  playing = on;
  lastTick = 0;
  $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  $("play").querySelector("path").setAttribute("d", on ? "M3 1.5h3v11H3zM8.5 1.5h3v11h-3z" : "M3 1.5v11l9-5.5z");
  schedule();
}
function toggle() {
  if (!playing && now >= duration - 1e-3) seek(0);
  if (!watchable) setPlaying(!playing);
  else if (video.paused) video.play().catch(() => {});
  else video.pause();
}

function openVideo() {
  const message = $("no-video");
  const giveUp = (bold, rest) => {
    if (watchable) setPlaying(false);
    watchable = false;
    video.hidden = $("sound").hidden = true;
    message.replaceChildren(make("b", "", bold), rest);
    message.hidden = false;
  };
  const address = report.video || embedded();
  if (!address) return giveUp("No video beside this report", "The timeline works without it.");
  const name = timeline.name ?? lastPart(timeline.source ?? "the video");
  const cannot = () => giveUp("This browser cannot play " + name, "The file may have moved, or its coding is not one the browser knows. The timeline works without it.");
  video.addEventListener("error", cannot);
  video.addEventListener("loadedmetadata", () => {
    /* a picture the browser cannot decode may come without an error, as sound alone */
    if (!video.videoWidth) return cannot();
    watchable = true;
    if (now + ahead) video.currentTime = now + ahead;
    if (playing) video.play().catch(() => setPlaying(false));
  });
  video.addEventListener("play", () => setPlaying(true));
  for (const kind of ["pause", "ended"]) video.addEventListener(kind, () => {
    now = shownNow();
    moved = true;
    setPlaying(false);
  });
  video.addEventListener("click", toggle);
  video.hidden = false;
  $("sound").hidden = report.proxy === true; /* a copy has no sound */
  video.src = address;
}
/* The address of a video that the page itself holds, or null. */
function embedded() {
  const holder = $("media");
  if (!holder) return null;
  const text = holder.textContent;
  holder.remove(); /* the text is not kept beside the bytes */
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], report.embedded));
}
