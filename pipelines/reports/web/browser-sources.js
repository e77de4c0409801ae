/* Where pictures come from: files, which wait, and a webcam, which does not. The thread of browser-worker.js decides. */
const EARLY = 5e-6; /* seconds before a border between two frames; players round to a millionth */
const SEEK_PATIENCE = 15_000, SHOW_PATIENCE = 500; /* milliseconds */
let run = 0, stopCurrent = () => {};
const worker = new Worker("scripts/browser-worker.js");
const tell = (message, transfer = []) => worker.postMessage(message, transfer);

/* What a video element shows: its frame with its own time, or a picture where that would be turned. */
async function pictureFrom(shown) {
  if (typeof VideoFrame !== "undefined") {
    const frame = new VideoFrame(shown);
    if (!frame.rotation && !frame.flip && frame.displayWidth === shown.videoWidth && frame.displayHeight === shown.videoHeight) return frame;
    frame.close();
  }
  return createImageBitmap(shown);
}
const once = (target, ...kinds) => new Promise((resolve) => {
  const control = new AbortController();
  for (const kind of kinds) target.addEventListener(kind, () => { control.abort(); resolve(kind); }, { signal: control.signal });
});
const patient = (promise, milliseconds) => Promise.race([promise, new Promise((resolve) => { setTimeout(resolve, milliseconds, "late"); })]);
/* A player has sought before it shows what it found: now and then the frame before is still there. */
async function seekPlayer(player, time) {
  const sought = once(player, "seeked", "error"), shown = new Promise((resolve) => { player.requestVideoFrameCallback?.(resolve); });
  player.currentTime = time;
  if (await patient(sought, SEEK_PATIENCE) !== "seeked") throw new Error("the player cannot go to " + time.toFixed(2) + " s");
  await patient(shown, SHOW_PATIENCE);
}

/* A player's frames one by one: before the end of each slot of 24 in a second, the frame that is shown is the slot's. */
async function stepThrough(file, own) {
  const player = document.createElement("video"), address = URL.createObjectURL(file);
  const over = () => own !== run;
  const loaded = once(player, "loadeddata", "error");
  Object.assign(player, { muted: true, preload: "auto", playsInline: true, src: address });
  try {
    if (await patient(loaded, SEEK_PATIENCE) !== "loadeddata" || !player.videoWidth) return cannotDecode(file.name);
    if (player.duration === Infinity) await seekPlayer(player, 1e7).catch(() => {}); /* recordings of browsers do not say how long they are */
    const end = player.duration === Infinity ? player.currentTime : player.duration;
    await seekPlayer(player, 0);
    const first = await pictureFrom(player), from = (first.timestamp ?? 0) / 1e6, total = Math.floor((end - from) * 24 + 0.5);
    first.close();
    if (over()) return;
    opened(end - from, "by the player, frame after frame");
    tell({ kind: "begin", run: own });
    for (let slot = 0; slot < total && !over() && !stopping; slot++) {
      if (!needed.has(slot % 6)) continue;
      await seekPlayer(player, Math.min(from + (slot + 0.5) / 24 - EARLY, end));
      const picture = await pictureFrom(player), taken = new Promise((resolve) => { onTaken = resolve; });
      tell({ kind: "slot", run: own, slot, picture }, [picture]);
      await taken;
    }
    if (!over()) tell({ kind: "end", run: own, slot: stopping ? 0 : total });
  } catch (error) {
    if (!over()) failed(file.name + " cannot be read to its end: " + error.message + ".", "What was decided until then stays.");
    if (!over()) tell({ kind: "end", run: own, slot: 0 });
  } finally {
    closeMedia(player);
    URL.revokeObjectURL(address);
  }
}
const cannotDecode = (name) => {
  ended();
  failed("This browser cannot decode " + name + ".", "Use a video in H.264 or VP9, or decide on it with lstr detect.");
};
let needed = new Set(), onTaken = () => {}, stopping = false, stream = null;

function leaveSource() {
  tell({ kind: "stop", run });
  run++;
  stopping = false;
  onTaken();
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = null;
  if (video.src) URL.revokeObjectURL(video.src);
  video.removeAttribute("src");
  video.srcObject = null;
}
function openFile(file) {
  leaveSource();
  const own = run;
  begun(file.name, "Opening " + file.name + " …");
  video.src = URL.createObjectURL(file);
  fileOpen = file;
  stopCurrent = () => { stopping = true; tell({ kind: "stop", run: own }); };
  tell({ kind: "file", run: own, file });
}
let fileOpen = null;

const CAMERA_FAULTS = {
  NotAllowedError: ["The webcam was refused.", "Allow it for this page, in the address bar or the system's settings."],
  NotFoundError: ["There is no webcam.", "Connect one, or choose a video."],
  NotReadableError: ["The webcam cannot be read.", "Another program may use it: close that."],
};
async function openCamera() {
  if (!navigator.mediaDevices?.getUserMedia) return failed("Browsers give a webcam only to pages of https or localhost.", "Open this page at such an address, or choose a video.");
  leaveSource();
  const own = run;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 }, frameRate: { ideal: 30 } }, audio: false });
  } catch (error) {
    ended();
    return failed(...(CAMERA_FAULTS[error.name] ?? ["The webcam cannot be opened (" + error.message + ").", "Choose a video."]));
  }
  if (own !== run) return;
  begun("Webcam", "");
  opened(60, "live");
  video.srcObject = stream;
  tell({ kind: "begin", run: own });
  const stop = () => {
    if (own !== run || stopping) return;
    stopping = true;
    for (const track of stream.getTracks()) track.stop();
    tell({ kind: "end", run: own });
  };
  stopCurrent = stop;
  stream.getVideoTracks()[0].addEventListener("ended", stop);
  const took = async (seconds) => {
    const picture = await pictureFrom(video);
    tell({ kind: "live", run: own, seconds, picture, at: isoText(new Date()) }, [picture]);
  };
  const follow = (_, { mediaTime }) => {
    if (own !== run || stopping) return;
    took(mediaTime).catch(() => {}); /* the camera went as its picture was taken: its track has ended */
    video.requestVideoFrameCallback(follow);
  };
  await video.play();
  video.requestVideoFrameCallback(follow);
}
/* A moment on the clock of this machine, with its zone, to the millisecond. */
function isoText(moment) {
  const zone = -moment.getTimezoneOffset(), pad = (value) => String(value).padStart(2, "0");
  const local = new Date(moment.getTime() + zone * 60_000).toISOString().slice(0, -1);
  return local + (zone < 0 ? "-" : "+") + pad(Math.floor(Math.abs(zone) / 60)) + ":" + pad(Math.abs(zone) % 60);
}
