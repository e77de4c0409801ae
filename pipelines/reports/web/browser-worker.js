"use strict";
/* The thread that decodes, makes images and decides, so that the page stays awake. It is told {kind, run, …} and answers
   with the same `run`; what belongs to a run that is over is left. */
importScripts(
  "../onnxruntime/ort.wasm.min.js", "rules.js", "browser-plans.js", "browser-timeline.js", "browser-pictures.js", "browser-colours.js",
  "browser-frames.js", "browser-tags.js", "browser-mp4.js", "browser-decoder.js", "browser-networks.js",
);
const WAITING = 4; /* whole chunks of a camera that wait at most */
let report = null, model = null, needed = new Set(), current = null;

/* All that belongs to one source, from its first frame on. */
function begin(run) {
  current?.chunks.close();
  current = {
    run, stream: beginStream(report.step), timeline: makeTimeline(report.classes, report.rules), chunks: makeChunks(needed), live: null,
    waiting: [], missing: [], next: 0, last: 0, deciding: null,
  };
  return current;
}
const say = (source, message) => { if (source === current) postMessage({ run: source.run, ...message }); };

let free = Promise.resolve();
/* Waits until it is one's turn; what comes is to be called when that is over. */
async function turn() {
  const before = free;
  let done;
  free = new Promise((resolve) => { done = resolve; });
  await before;
  return done;
}
/* `closed` is when a live chunk was whole; a latency counts from there, of a file from the features. */
async function decide(source, { index, frames, closed = null, at = null }) {
  const done = await turn(); /* the graphs run for one chunk at a time, also where another source was just chosen */
  let from, scores;
  try {
    const features = await featuresOf(model, report.streams, report.rgb_frame, frames);
    from = closed ?? performance.now();
    scores = await stepAhead(model, report.step, source.stream, features);
  } finally {
    done();
  }
  if (source !== current) return;
  const time = (index + 1) * CHUNK_SECONDS, line = toLine(report.classes, index, scores, performance.now() - from, at);
  const events = source.timeline.push(time, scores[0], scores.slice(1)), gaps = gapsBefore(source, index, time);
  const { width, height } = frames.find(Boolean);
  source.last = time;
  say(source, { kind: "decided", line, events, gaps, scores: scores[0], shape: width / height });
}
function end(source) {
  say(source, { kind: "ended", events: source.timeline.finish(source.last), time: source.last });
  source.chunks.close();
  source.live?.close();
}

async function readFile(source, file) {
  const video = await openDecodable(file);
  if (!video) return say(source, { kind: "undecodable" });
  say(source, { kind: "opened", seconds: video.end / video.timescale });
  let came = false;
  try {
    for await (const [slot, picture] of decodedFrames(file, video)) {
      if (source !== current || source.stopped) { picture?.close(); break; }
      came ||= Boolean(picture);
      const whole = picture ? await source.chunks.take(slot, frameOf(picture, report.long_side, video.matrix)) : await source.chunks.end(slot);
      for (const chunk of whole) await decide(source, chunk);
    }
  } catch (error) {
    if (!came) return say(source, { kind: "undecodable" });
    say(source, { kind: "damaged", text: String(error.message ?? error) });
  }
  end(source);
}
/* A frame whose slot is known; the page waits until `taken` before it sends the next one. */
async function takeSlot(source, { slot, picture }) {
  for (const chunk of await source.chunks.take(slot, frameOf(picture, report.long_side))) await decide(source, chunk);
  say(source, { kind: "taken", slot });
}

/* A camera does not wait: the oldest chunk gives way, and what is missing is told. */
async function takeLive(source, { seconds, picture, at }) {
  source.live ??= makeLiveChunks(needed);
  for (const chunk of await source.live.take(seconds, frameOf(picture, report.long_side))) {
    if (chunk.index > source.next) source.missing.push({ first: source.next, end: chunk.index, reason: "unseen" });
    source.next = chunk.index + 1;
    if (source.waiting.length >= WAITING) {
      const { index } = source.waiting.shift();
      source.missing.push({ first: index, end: index + 1, reason: "dropped" });
    }
    source.waiting.push({ ...chunk, closed: performance.now(), at });
  }
  source.deciding ??= decideWaiting(source).finally(() => { source.deciding = null; });
}
async function decideWaiting(source) {
  while (source === current && source.waiting.length) {
    await decide(source, source.waiting.shift());
    await new Promise((resolve) => { setTimeout(resolve); }); /* frames that came meanwhile are taken first */
  }
}
/* The gaps before a chunk, neighbours of one reason as one, each told once. */
function gapsBefore(source, index, time) {
  const passed = source.missing.filter((gap) => gap.end <= index).sort((one, other) => one.first - other.first), joined = [];
  source.missing = source.missing.filter((gap) => gap.end > index);
  for (const gap of passed) {
    const last = joined.at(-1);
    if (last?.end === gap.first && last.reason === gap.reason) last.end = gap.end; else joined.push({ ...gap });
  }
  return joined.map(({ first, end: until, reason }) => ({ gap: reason, time, start: first * CHUNK_SECONDS, end: until * CHUNK_SECONDS, chunks: until - first }));
}

const actions = {
  async open({ report: given }) {
    report = given;
    needed = new Set(report.streams.flatMap((part) => neededBy(part, report.rgb_frame)));
    model = await openModel(report, (graph) => postMessage({ kind: "graph", graph }));
    postMessage({ kind: "ready", needed: [...needed] });
  },
  file: ({ run, file }) => readFile(begin(run), file),
  begin: ({ run }) => { begin(run); },
  slot: (message) => takeSlot(current, message),
  live: (message) => takeLive(current, message),
  async end({ slot }) {
    const source = current;
    if (slot !== undefined) for (const chunk of await source.chunks.end(slot)) await decide(source, chunk);
    else await source.deciding;
    end(source);
  },
};
/* One after the other; but a new source does not wait for the one that it follows. */
let before = Promise.resolve();
addEventListener("message", ({ data }) => {
  if (data.kind === "stop") { if (data.run === current?.run) current.stopped = true; return; }
  const opens = data.kind === "file" || data.kind === "begin";
  if (!opens && data.run !== undefined && data.run !== current?.run) { data.picture?.close?.(); return; }
  const act = () => (opens || data.run === undefined || data.run === current?.run ? actions[data.kind](data) : data.picture?.close?.());
  before = (opens ? Promise.resolve(act()) : before.then(act)).catch((error) => postMessage({ kind: "failed", run: data.run, text: String(error?.message ?? error) }));
});
