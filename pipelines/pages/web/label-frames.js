/* The image: the video while it plays, else the exact frame at the cursor. The clock shows the time of that frame. */
let times = new Float64Array([0]), duration = 1, ahead = 0; /* of the video; seconds that a player's clock is ahead */
let number = 0, shownNumber = -1, wanted = -1, loading = false; /* frames: at the cursor, on show, asked for */
let opened = -1; /* the place of the video whose times these are: the chosen one once it is open */
const isOpening = () => opened !== chosenVideo;
let rate = 0, lastTick = 0, films = false, filmTime = null; /* rate: of playing; negative is backwards, 0 is still */
let trouble = null, filmText = ""; /* shown instead of an image: [what, why]; how the video is played */
let loop = null; /* [start, end] in seconds of a clip that is played again and again */
const kept = new Map(); /* pictures near the cursor, by number */
const KEPT = 24, NEAR = [1, 2, -1, 3];

function numberAt(time) {
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= time + 5e-7) low = middle; else high = middle - 1;
  }
  return low;
}
function picture(which) {
  let image = kept.get(which);
  if (!image) {
    const side = Math.min(1920, Math.ceil(Math.max($("screen").clientWidth, 320) * (devicePixelRatio || 1)));
    image = new Image();
    image.src = "/frame/" + chosenVideo + "?number=" + which + "&side=" + side;
    kept.set(which, image);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  }
  return image;
}
/* Shows the frame at the cursor; while one is on its way, only the last that is asked for comes after it. */
async function showFrame() {
  wanted = number;
  if (loading) return;
  loading = true;
  while (wanted >= 0 && (shownNumber !== wanted || !$("screen").classList.contains("still"))) {
    const which = wanted, of = chosenVideo, image = picture(which);
    try {
      await image.decode();
    } catch {
      kept.delete(which);
      if (of !== chosenVideo || which !== wanted) continue;
      shownNumber = which;
      showTrouble(["This frame cannot be decoded", "Other frames may be readable."]);
      showClock();
      break;
    }
    if (of !== chosenVideo || wanted < 0) continue; /* another video is being opened */
    showTrouble(null);
    $("still").src = image.src;
    await $("still").decode().catch(() => {});
    if (of !== chosenVideo || wanted < 0) continue;
    if (films && rate > 0) break;
    shownNumber = which;
    $("screen").classList.add("still");
    $("still").hidden = false;
    showClock();
    if (which === wanted) for (const step of NEAR) if (rate === 0 && times[which + step] !== undefined) picture(which + step);
  }
  loading = false;
}
function showTrouble(next) {
  if (next) $("still").hidden = true;
  if (next === trouble) return;
  trouble = next;
  draw();
}
function showClock() {
  const filming = films && rate > 0, time = filming ? now : times[Math.max(0, shownNumber)];
  render(html`<b>${clock(time)}</b> / ${clock(duration)} · frame ${numberText((filming ? number : shownNumber) + 1)}`, $("clock"));
}
const clock = (time) => clockText(time, 3, duration >= 3600);

function seekFrame(which) {
  number = Math.max(0, Math.min(times.length - 1, which));
  now = times[number];
  if (films && rate > 0) $("video").currentTime = now + ahead + 5e-4;
  if (!(films && rate > 0)) showFrame();
  lookAtCursor();
}
const seek = (time) => seekFrame(numberAt(time));
function stepBy(by) {
  setRate(0);
  seekFrame(number + by);
}

/* Playing. Forwards by the film where there is one; else, and backwards, by exact frames as fast as they come. */
function setRate(next) {
  const was = rate;
  if (next === was) return;
  rate = next;
  lastTick = 0;
  draw();
  if (films && rate > 0) {
    $("video").playbackRate = Math.min(16, rate);
    if (was <= 0) {
      $("video").currentTime = now + ahead + 5e-4;
      filmTime = null;
      $("video").play().then(() => { if (rate > 0) $("screen").classList.remove("still"); }).catch(() => {});
    }
  } else {
    const filmed = films && was > 0;
    $("video").pause();
    if (filmed) seek(Math.max(0, (filmTime ?? $("video").currentTime) - ahead)); else showFrame();
  }
  schedule();
}
const speed = () => Number($("rate").value);
function toggle() {
  if (!rate && number >= times.length - 1) seekFrame(0);
  setRate(rate ? 0 : speed());
}
function shuttle(way) {
  const same = Math.sign(rate) === way;
  setRate(same ? way * Math.min(8, Math.abs(rate) * 2) : way * speed());
}
function changeSpeed(way) {
  const options = [...$("rate").options], at = Math.max(0, Math.min(options.length - 1, $("rate").selectedIndex + way));
  $("rate").selectedIndex = at;
  if (rate) setRate(Math.sign(rate) * speed());
}
function tickPlaying(tick) {
  if (loop && rate > 0 && !(films && $("video").seeking) && (now >= loop[1] || number >= times.length - 1 || (films && $("video").ended))) {
    filmTime = null;
    seek(loop[0]);
    if (films) $("video").play().catch(() => {});
  } else if (films && rate > 0) {
    const time = Math.max(0, Math.min(duration, (filmTime ?? $("video").currentTime) - ahead));
    number = numberAt(time);
    now = times[number];
    showClock();
    if ($("video").ended && !loop) setRate(0);
  } else {
    const passed = lastTick ? (tick - lastTick) / 1000 * rate : 0;
    now = Math.max(0, Math.min(duration, now + passed));
    number = numberAt(now);
    showFrame();
    if ((rate > 0 && now >= times.at(-1) && !loop) || (rate < 0 && now <= 0)) setRate(0);
  }
  lastTick = tick;
}
function watchFilm() {
  const follow = (_, { mediaTime }) => { filmTime = mediaTime; $("video").requestVideoFrameCallback(follow); };
  if ($("video").requestVideoFrameCallback) $("video").requestVideoFrameCallback(follow);
  $("video").addEventListener("seeking", () => { filmTime = null; });
  $("video").addEventListener("error", () => { if (films) { films = false; setRate(0); } });
  for (const shown of [$("video"), $("still")]) shown.addEventListener("click", toggle);
}

/* Opens a video: when its frames are, then the first picture; a film as soon as there is one. */
async function openVideo(at) {
  setRate(0);
  wanted = shownNumber = -1;
  films = false;
  kept.clear();
  closeMedia($("video"));
  const { answer, content } = await timesOf(at);
  if (at !== chosenVideo) return false;
  if (!answer.ok) {
    const { error = "This video cannot be read" } = await new Response(content).json().catch(() => ({}));
    opened = at;
    times = new Float64Array([0]);
    duration = videos[at].duration || 1;
    showTrouble(["This video cannot be shown", error]);
    return true;
  }
  opened = at;
  times = new Float64Array(content);
  duration = Number(answer.headers.get("x-duration"));
  ahead = Number(answer.headers.get("x-start"));
  waitForFilm(at);
  return true;
}
/* When the frames of a video are, asked for until something answers or another video is wanted. */
async function timesOf(at) {
  const say = () => at === chosenVideo && showTrouble(["Reading the times of all frames", "Once in each run of lstr label; a long video takes a while."]);
  for (; at === chosenVideo; await pause(500)) {
    const timer = setTimeout(say, 700);
    try {
      const answer = await fetch("/times/" + at);
      return { answer, content: await answer.arrayBuffer() };
    } catch { /* lstr label does not run, which the page says already */ } finally { clearTimeout(timer); }
  }
  return {};
}
const FILM_TEXTS = {
  soon: "Making a copy that browsers play; until then it plays as still frames", copy: "Playback shows a small copy; still frames are of the video itself",
  never: "Browsers cannot play this video: it plays as still frames",
};
async function waitForFilm(at) {
  while (at === chosenVideo) {
    const plays = await fetch("/plays/" + at).then((answer) => answer.json()).then((answer) => answer.plays).catch(() => "soon");
    if (at !== chosenVideo) return;
    filmText = FILM_TEXTS[plays] ?? "";
    draw();
    if (plays === "video" || plays === "copy") {
      if (plays === "copy") ahead = 0;
      const was = rate;
      setRate(0); /* a film takes over where frames had come one by one */
      $("video").src = "/film/" + at;
      films = true;
      setRate(was);
    }
    if (plays !== "soon") return;
    await pause(700);
  }
}
