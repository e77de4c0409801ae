/* Every frame of an MP4 file in its order, by the browser's own decoder. */
const AHEAD = 6; /* frames that are decoded and wait; more may be more than a decoder has */
const TICK = 1e6; /* of the decoder's clock, in a second */

/* What `openMp4` says of a file, where this browser decodes it; null where the player has to. */
async function openDecodable(file) {
  if (typeof VideoDecoder === "undefined") return null;
  try {
    const video = await openMp4(file);
    return video && (await VideoDecoder.isConfigSupported(video.config)).supported ? video : null;
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) return null; /* tables that are cut short */
    throw error;
  }
}

/* Each frame [slot, VideoFrame], and last [slot of the end, null]. Throws what the decoder does. */
async function* decodedFrames(file, { config, timescale, samples, end }) {
  const stamp = ({ time }) => Math.round(time / timescale * TICK), ticksAt = new Map(samples.map((sample) => [stamp(sample), sample.time]));
  const ready = [];
  let failure = null, wake = () => {}, flushed = false;
  const changed = () => new Promise((resolve) => { wake = resolve; });
  const decoder = new VideoDecoder({
    output(frame) { ready.push(frame); wake(); },
    error(error) { failure = error; wake(); },
  });
  const slotAt = (frame) => slotOf(ticksAt.get(frame.timestamp) ?? Math.round(frame.timestamp / TICK * timescale), timescale);
  try {
    decoder.configure(config);
    decoder.addEventListener("dequeue", () => wake());
    for (const sample of samples) {
      const data = await file.slice(sample.at, sample.at + sample.size).arrayBuffer();
      while (!failure && (ready.length >= AHEAD || decoder.decodeQueueSize >= AHEAD)) {
        const waiting = changed();
        if (ready.length) { const frame = ready.shift(); yield [slotAt(frame), frame]; } else await waiting;
      }
      if (failure) throw failure;
      decoder.decode(new EncodedVideoChunk({ type: sample.key ? "key" : "delta", timestamp: stamp(sample), data }));
    }
    decoder.flush().then(() => { flushed = true; wake(); }, (error) => { failure ??= error; wake(); });
    while (!flushed || ready.length) {
      const waiting = changed();
      if (ready.length) { const frame = ready.shift(); yield [slotAt(frame), frame]; } else if (failure) throw failure; else await waiting;
    }
    yield [slotOf(end, timescale), null];
  } finally {
    for (const frame of ready) frame.close();
    if (decoder.state !== "closed") decoder.close();
  }
}
