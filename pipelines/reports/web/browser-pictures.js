/* What the networks see of a chunk, as lstr/extractors/images makes it with OpenCV. An image is {width, height, channels,
   data}, its samples interleaved. */
const CHUNK = 6, FPS = 24;
const GREYS = [0, 2, 5], PAIRS = [[0, 1], [1, 3], [3, 5]], ENDS = [0, 5];
const GAIN = 2, MIDDLE = 127; /* of a difference */

/* The nearest whole number, and of two the even one, as Python and OpenCV round. */
function roundEven(value) {
  const floor = Math.floor(value), rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2) ? floor + 1 : floor;
}
function workingSize(width, height, longSide, aspect = 1) {
  const [across, down] = aspect > 1 ? [width, height / aspect] : [width * aspect, height];
  const scale = Math.min(1, longSide / Math.max(across, down));
  return [Math.max(1, roundEven(across * scale)), Math.max(1, roundEven(down * scale))];
}

/* Which samples of a line go into each sample of a shorter one, and by how much: OpenCV's INTER_AREA, whose
   every product and sum is a float of 32 bits. Those of `at` are the `from[at]`-th parts to before the next one's. */
function areasOf(length, shorter) {
  const scale = length / shorter, from = new Int32Array(shorter + 1), samples = [], shares = [];
  const add = (sample, share) => { samples.push(sample); shares.push(share); };
  for (let at = 0; at < shorter; at++) {
    const begin = at * scale, end = begin + scale, cell = Math.min(scale, length - begin);
    const last = Math.min(Math.floor(end), length - 1), first = Math.min(Math.ceil(begin), last);
    if (first - begin > 1e-3) add(first - 1, (first - begin) / cell);
    for (let sample = first; sample < last; sample++) add(sample, 1 / cell);
    if (end - last > 1e-3) add(last, Math.min(Math.min(end - last, 1), cell) / cell);
    from[at + 1] = samples.length;
  }
  return { from, samples: Int32Array.from(samples), shares: Float32Array.from(shares) };
}
function resizeArea(image, [width, height]) {
  const { channels, data } = image, line = image.width * channels, across = areasOf(image.width, width), down = areasOf(image.height, height);
  const result = new Uint8ClampedArray(width * height * channels), halves = image.width === 2 * width && image.height === 2 * height;
  /* by whole numbers OpenCV adds first and divides last */
  const isWhole = image.width % width === 0 && image.height % height === 0;
  const weight = isWhole ? Math.fround(1 / (image.width / width * (image.height / height))) : 1;
  if (isWhole) for (const { shares } of [across, down]) shares.fill(1);
  const row = new Float32Array(width * channels), sums = new Float32Array(width * channels);
  let held = -1; /* the row of the image that is in `row` */
  const hold = (number) => {
    row.fill(0);
    for (let x = 0; x < width; x++) {
      for (let part = across.from[x]; part < across.from[x + 1]; part++) {
        const share = across.shares[part], at = number * line + across.samples[part] * channels;
        for (let c = 0; c < channels; c++) row[x * channels + c] += Math.fround(share * data[at + c]);
      }
    }
    held = number;
  };
  for (let y = 0; y < height; y++) {
    sums.fill(0);
    for (let part = down.from[y]; part < down.from[y + 1]; part++) {
      if (held !== down.samples[part]) hold(down.samples[part]);
      for (let n = 0; n < sums.length; n++) sums[n] += Math.fround(down.shares[part] * row[n]);
    }
    const at = y * width * channels;
    for (let n = 0; n < sums.length; n++) result[at + n] = halves ? Math.floor(sums[n] / 4 + 0.5) : roundEven(Math.fround(sums[n] * weight));
  }
  return { width, height, channels, data: result };
}
/* The two samples of a line that go into each of another, in steps of 1/2048: OpenCV's INTER_LINEAR. */
function pairsOf(from, to) {
  return Array.from({ length: to }, (_, at) => {
    const place = Math.fround((at + 0.5) * (from / to) - 0.5);
    let first = Math.floor(place), share = Math.fround(place - first);
    if (first < 0) [first, share] = [0, 0];
    if (first >= from - 1) [first, share] = [from - 1, 0];
    return { first, second: Math.min(first + 1, from - 1), a: roundEven((1 - share) * 2048), b: roundEven(share * 2048) };
  });
}
function resizeLinear(image, [width, height]) {
  if (image.width === width && image.height === height) return image;
  const { channels, data } = image, across = pairsOf(image.width, width), line = image.width * channels;
  const result = new Uint8ClampedArray(width * height * channels);
  const mixed = (row) => {
    const values = new Int32Array(width * channels);
    across.forEach(({ first, second, a, b }, x) => {
      for (let c = 0; c < channels; c++) values[x * channels + c] = (data[row * line + first * channels + c] * a + data[row * line + second * channels + c] * b) >> 4;
    });
    return values;
  };
  const rows = new Map(), rowAt = (row) => { if (!rows.has(row)) rows.set(row, mixed(row)); return rows.get(row); };
  pairsOf(image.height, height).forEach(({ first, second, a, b }, y) => {
    const upper = rowAt(first), lower = rowAt(second);
    for (const row of rows.keys()) if (row < first) rows.delete(row);
    for (let n = 0; n < upper.length; n++) result[y * upper.length + n] = (((upper[n] * a) >> 16) + ((lower[n] * b) >> 16) + 2) >> 2;
  });
  return { width, height, channels, data: result };
}
const shrink = (image, size) => (image.width === size[0] && image.height === size[1] ? image : resizeArea(image, size));

/* So that the shorter side has so many pixels. */
function fit(image, shortSide) {
  const scale = shortSide / Math.min(image.width, image.height);
  return resizeLinear(image, [image.width, image.height].map((side) => Math.max(shortSide, roundEven(side * scale))));
}
/* As small as it can be with this height and width at least. */
function cover(image, height, width) {
  const scale = Math.max(height / image.height, width / image.width);
  const size = [Math.max(width, roundEven(image.width * scale)), Math.max(height, roundEven(image.height * scale))];
  return scale < 1 ? shrink(image, size) : resizeLinear(image, size);
}
function greyOf({ width, height, data: colours }) {
  const data = new Uint8ClampedArray(width * height);
  for (let at = 0, from = 0; at < data.length; at++, from += 3) data[at] = (9798 * colours[from] + 19235 * colours[from + 1] + 3735 * colours[from + 2] + 16384) >> 15;
  return { width, height, channels: 1, data };
}
function interleaved(images) {
  const { width, height } = images[0], channels = images.reduce((sum, image) => sum + image.channels, 0);
  const data = new Uint8ClampedArray(width * height * channels);
  let first = 0;
  for (const { channels: own, data: samples } of images) {
    for (let at = 0; at < width * height; at++) for (let c = 0; c < own; c++) data[at * channels + first + c] = samples[at * own + c];
    first += own;
  }
  return { width, height, channels, data };
}
/* What one stream shows of six frames; `at` is the one that `rgb` shows. */
function pictureOf(stream, frames, at) {
  if (stream === "rgb") return frames[at];
  if (stream === "change") return interleaved(ENDS.map((end) => frames[end]));
  const greys = new Map(), grey = (number) => { if (!greys.has(number)) greys.set(number, greyOf(frames[number])); return greys.get(number); };
  if (stream === "grey") return interleaved(GREYS.map(grey));
  return interleaved(PAIRS.map(([earlier, later]) => {
    const before = grey(earlier), after = grey(later);
    return { ...before, data: Uint8ClampedArray.from(after.data, (value, pixel) => GAIN * (value - before.data[pixel]) + MIDDLE) };
  }));
}
/* Which frames of a chunk a stream's network is shown, of `rgb`, and which it needs. */
const shownFrames = ({ segments }, rgbFrame) => (segments > 1 ? rangeOf(segments, (at) => Math.floor((2 * at + 1) * CHUNK / (2 * segments))) : [rgbFrame]);
const neededBy = (part, rgbFrame) => ({ rgb: shownFrames(part, rgbFrame), grey: GREYS, difference: [...new Set(PAIRS.flat())], change: ENDS })[part.stream];

/* The samples of a part of an image at `to` in `target`, mirrored where that is wanted. */
function copyCrop(image, x, y, [height, width], mirrored, target, to) {
  const { channels, data } = image;
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const from = ((y + row) * image.width + x + (mirrored ? width - 1 - column : column)) * channels;
      for (let c = 0; c < channels; c++) target[to++] = data[from + c];
    }
  }
  return to;
}
/* Where the crops of an image are: its centre, this and its mirror image, or four corners and the centre, both ways. */
function cropsOf(image, crops, [height, width]) {
  const down = image.height - height, across = image.width - width, centre = [Math.floor(across / 2), Math.floor(down / 2)];
  if (crops < 10) return crops === 1 ? [[...centre, false]] : [[...centre, false], [...centre, true]];
  const w = Math.floor(across / 4), h = Math.floor(down / 4);
  return [[0, 0], [4 * w, 0], [0, 4 * h], [4 * w, 4 * h], [2 * w, 2 * h]].flatMap(([x, y]) => [[x, y, false], [x, y, true]]);
}
/* What the network of a part of the recipe takes of a chunk: {data, dims}, dims (1, crops · segments, height, width, C). */
function viewOf(part, frames, rgbFrame) {
  const whole = part.size.map((side) => roundEven(side * part.margin));
  const fitted = shownFrames(part, rgbFrame).map((at) => {
    const picture = pictureOf(part.stream, frames, at);
    return part.short_side === null ? cover(picture, ...whole) : fit(picture, part.short_side);
  });
  const [height, width] = part.size, dims = [1, part.crops * part.segments, height, width, fitted[0].channels];
  const data = new Uint8Array(dims.reduce((product, size) => product * size));
  let to = 0;
  for (const [x, y, mirrored] of cropsOf(fitted[0], part.crops, part.size)) for (const image of fitted) to = copyCrop(image, x, y, part.size, mirrored, data, to);
  return { data, dims };
}
