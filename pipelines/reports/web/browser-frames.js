/* Source frames at their own times to 24 FPS, and six of those to a chunk, as lstr/extractors/video/frames.py does it. A
   frame is {image(), close()}; its slot is floor(time · 24 + 1/2), and it is shown until the next one's slot. */
const slotOf = (ticks, timescale) => Math.floor((2 * FPS * ticks + timescale) / (2 * timescale));

/* `needed` are the frames of a chunk, from 0 to 5, that any network sees: no other is made an image. Chunks before `first`
   are left out. */
function makeChunks(needed, first = 0) {
  let next = first * CHUNK, held = null, frames = [];
  /* Shows the held frame up to a slot; the chunks {index, frames} that this ends. */
  async function showUntil(slot) {
    const whole = [];
    for (; held && next < slot; next++) {
      if (needed.has(next % CHUNK)) frames[next % CHUNK] = await held.image();
      if (next % CHUNK < CHUNK - 1) continue;
      whole.push({ index: (next + 1) / CHUNK - 1, frames });
      frames = [];
    }
    return whole;
  }
  return {
    async take(slot, frame) {
      const whole = await showUntil(slot);
      held?.close();
      held = frame;
      return whole;
    },
    async end(slot) {
      const whole = await showUntil(slot);
      held?.close();
      held = null;
      return whole;
    },
    close() { held?.close(); held = null; },
  };
}

/* A VideoFrame or an ImageBitmap as a frame, whose image has the working size; made once, and only where it is needed. */
function frameOf(picture, longSide, matrix = null) {
  let made = null, open = true;
  const make = async () => {
    const image = picture.data ? picture : await rgbOf(picture, matrix);
    return shrink(image, workingSize(image.width, image.height, longSide, image.aspect));
  };
  return {
    image: () => (made ??= make()),
    close() {
      if (open) picture.close?.();
      open = false;
    },
  };
}

/* Chunks of a source that goes on by itself: where nothing came for longer than a frame may stand, chunks are missing. */
const GAP_SECONDS = 2, SLOW_STEPS = 4, SILENCE = 10;
const LIVE_SCALE = 1e6; /* ticks in a second */
function makeLiveChunks(needed) {
  let chunks = null, origin = null, last = 0, newest = 0;
  return {
    /* The chunks that a frame at `seconds` ends. */
    async take(seconds, frame) {
      origin ??= seconds;
      const time = Math.max(seconds - origin, last), apart = time - last, allowed = Math.min(Math.max(GAP_SECONDS, SLOW_STEPS * newest), SLOW_STEPS * SILENCE);
      const slot = slotOf(Math.round(time * LIVE_SCALE), LIVE_SCALE), isCut = chunks && apart > allowed;
      const before = isCut ? await chunks.end(slotOf(Math.round((last + Math.min(newest, GAP_SECONDS)) * LIVE_SCALE), LIVE_SCALE)) : [];
      if (!chunks || isCut) chunks = makeChunks(needed, Math.ceil(slot / CHUNK));
      newest = apart;
      last = time;
      return [...before, ...await chunks.take(slot, frame)];
    },
    close() { chunks?.close(); },
  };
}
