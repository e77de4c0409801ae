/* The frames of an MP4 or QuickTime file for the browser's decoder, read from the file's own tables. Null where a file is
   another container, is in fragments, is turned, or shows only a part of its frames: the player takes those. */
const MOST_INDEX = 1 << 28; /* bytes of the tables */

const typeAt = (view, at) => String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + at, 4));
/* The boxes [type, view of what is inside] of a part of a file. */
function boxesIn(view) {
  const boxes = [];
  for (let at = 0; at + 8 <= view.byteLength;) {
    let size = view.getUint32(at), head = 8;
    if (size === 1 && at + 16 <= view.byteLength) [size, head] = [Number(view.getBigUint64(at + 8)), 16];
    if (!size) size = view.byteLength - at;
    if (size < head || at + size > view.byteLength) break;
    boxes.push([typeAt(view, at + 4), new DataView(view.buffer, view.byteOffset + at + head, size - head)]);
    at += size;
  }
  return boxes;
}
const boxIn = (view, ...path) => path.reduce((inside, type) => inside && boxesIn(inside).find(([own]) => own === type)?.[1], view);

async function readIndex(file) {
  for (let at = 0; at + 8 <= file.size;) {
    const head = new DataView(await file.slice(at, at + 16).arrayBuffer());
    let size = head.getUint32(0);
    if (at === 0 && !["ftyp", "moov", "mdat", "wide", "free", "skip"].includes(typeAt(head, 4))) return null;
    if (size === 1 && head.byteLength === 16) size = Number(head.getBigUint64(8));
    if (!size) size = file.size - at;
    if (size < 8) return null;
    if (typeAt(head, 4) === "moov") return size > MOST_INDEX ? null : new DataView(await file.slice(at + 8, at + size).arrayBuffer());
    at += size;
  }
  return null;
}

/* How the browser's decoder calls a coding: RFC 6381. */
const hex = (value, digits) => value.toString(16).padStart(digits, "0");
function codecOf(type, config) {
  const byte = (at) => config.getUint8(at);
  if (type.startsWith("avc")) return type + "." + hex(byte(1), 2) + hex(byte(2), 2) + hex(byte(3), 2);
  if (type === "av01") return "av01." + (byte(1) >> 5) + "." + String(byte(1) & 31).padStart(2, "0") + (byte(2) & 128 ? "H" : "M") + "." + (byte(2) & 64 ? (byte(2) & 32 ? "12" : "10") : "08");
  if (type === "vp09") return "vp09." + [byte(4), byte(5), byte(6) >> 4].map((part) => String(part).padStart(2, "0")).join(".");
  let flags = config.getUint32(2), turned = 0;
  for (let bit = 0; bit < 32; bit++, flags >>>= 1) turned = (turned << 1) | (flags & 1);
  const limits = Array.from({ length: 6 }, (_, at) => byte(6 + at));
  while (limits.length && !limits.at(-1)) limits.pop();
  return [type, ["", "A", "B", "C"][byte(1) >> 6] + (byte(1) & 31), (turned >>> 0).toString(16), (byte(1) & 32 ? "H" : "L") + byte(12), ...limits.map((value) => value.toString(16))].join(".");
}
const CONFIGS = { avc1: "avcC", avc3: "avcC", hvc1: "hvcC", hev1: "hvcC", av01: "av1C", vp09: "vpcC" };

const isUpright = (header) => {
  const at = header.getUint8(0) ? 52 : 40, matrix = [0, 4, 12, 16].map((place) => header.getInt32(at + place));
  return matrix.join() === [65536, 0, 0, 65536].join();
};
/* Seconds from which on the frames are shown, where that is all of them; null where it is a part. */
function isWhole(track, movieScale, timescale, times, end) {
  const list = boxIn(track, "edts", "elst");
  if (!list) return true;
  const long = list.getUint8(0) === 1, edits = [];
  for (let number = 0, at = 8; number < list.getUint32(4); number++, at += long ? 20 : 12) {
    edits.push(long ? [Number(list.getBigUint64(at)), Number(list.getBigInt64(at + 8))] : [list.getUint32(at), list.getInt32(at + 4)]);
  }
  const shown = edits.filter(([, from]) => from >= 0), first = times.reduce((least, time) => Math.min(least, time), Infinity);
  if (shown.length !== 1 || shown[0][1] > first) return false;
  return !shown[0][0] || shown[0][0] / movieScale > (end - shown[0][1]) / timescale - 0.1;
}
/* Each sample of a track: {at, size, time, key}, in the order of decoding; times in ticks. */
function samplesOf(table) {
  const [sizes, runs, durations] = ["stsz", "stsc", "stts"].map((type) => boxIn(table, type)), chunks = boxIn(table, "stco") ?? boxIn(table, "co64");
  if (!sizes || !chunks || !runs || !durations) return null;
  const wide = !boxIn(table, "stco"), count = sizes.getUint32(8), all = sizes.getUint32(4);
  const offsetOf = (chunk) => (wide ? Number(chunks.getBigUint64(8 + 8 * chunk)) : chunks.getUint32(8 + 4 * chunk));
  const samples = [], nChunks = chunks.getUint32(4), nRuns = runs.getUint32(4);
  for (let chunk = 0, run = 0; chunk < nChunks && samples.length < count; chunk++) {
    while (run + 1 < nRuns && runs.getUint32(8 + 12 * (run + 1)) <= chunk + 1) run++;
    for (let number = 0, at = offsetOf(chunk); number < runs.getUint32(12 + 12 * run) && samples.length < count; number++) {
      const size = all || sizes.getUint32(12 + 4 * samples.length);
      samples.push({ at, size, key: true, time: 0, lasts: 0 });
      at += size;
    }
  }
  const each = (box, act) => {
    for (let entry = 0, sample = 0; box && entry < box.getUint32(4); entry++) {
      for (let number = box.getUint32(8 + 8 * entry); number && sample < samples.length; number--, sample++) act(samples[sample], entry);
    }
  };
  let clock = 0;
  each(durations, (sample, entry) => { sample.time = clock; sample.lasts = durations.getUint32(12 + 8 * entry); clock += sample.lasts; });
  const shifts = boxIn(table, "ctts"), keys = boxIn(table, "stss");
  each(shifts, (sample, entry) => { sample.time += shifts.getInt32(12 + 8 * entry); });
  if (keys) {
    for (const sample of samples) sample.key = false;
    for (let entry = 0; entry < keys.getUint32(4); entry++) if (samples[keys.getUint32(8 + 4 * entry) - 1]) samples[keys.getUint32(8 + 4 * entry) - 1].key = true;
  }
  return samples;
}

/* {config for a VideoDecoder, timescale, samples whose times count from the first frame, end, matrix of
   its colours}, or null. */
async function openMp4(file) {
  const index = await readIndex(file);
  if (!index || boxIn(index, "mvex")) return null;
  const movie = boxIn(index, "mvhd"), movieScale = movie && movie.getUint32(movie.getUint8(0) ? 20 : 12);
  for (const [type, track] of boxesIn(index)) {
    const handler = type === "trak" && boxIn(track, "mdia", "hdlr"), header = boxIn(track, "tkhd"), media = boxIn(track, "mdia", "mdhd");
    if (!handler || typeAt(handler, 8) !== "vide" || !header || !media) continue;
    const table = boxIn(track, "mdia", "minf", "stbl"), described = table && boxIn(table, "stsd");
    if (!described || described.getUint32(4) !== 1 || !isUpright(header)) return null;
    const [[coding, entry]] = boxesIn(new DataView(described.buffer, described.byteOffset + 8, described.byteLength - 8));
    const inside = new DataView(entry.buffer, entry.byteOffset + 78, entry.byteLength - 78), config = CONFIGS[coding] && boxIn(inside, CONFIGS[coding]);
    const samples = samplesOf(table), timescale = media.getUint32(media.getUint8(0) ? 20 : 12);
    if (!config || !samples?.length || !samples[0].key || !timescale) return null;
    const end = samples.reduce((most, { time, lasts }) => Math.max(most, time + lasts), 0);
    const first = samples.reduce((least, { time }) => Math.min(least, time), Infinity);
    if (!isWhole(track, movieScale, timescale, samples.map(({ time }) => time), end)) return null;
    for (const sample of samples) sample.time -= first;
    const width = entry.getUint16(24), height = entry.getUint16(26), pixel = boxIn(inside, "pasp");
    const shape = pixel && pixel.getUint32(0) && pixel.getUint32(4) && { displayAspectWidth: width * pixel.getUint32(0), displayAspectHeight: height * pixel.getUint32(4) };
    const description = new Uint8Array(config.buffer, config.byteOffset, config.byteLength).slice();
    const known = { codec: codecOf(coding, config), codedWidth: width, codedHeight: height, ...shape };
    return { config: { ...known, ...(coding !== "vp09" && { description }) }, timescale, samples, end: end - first, matrix: matrixOf(coding, config, boxIn(inside, "colr")) };
  }
  return null;
}
