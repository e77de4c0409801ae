/* Decoded planes to RGB by FFmpeg's arithmetic, so that a frame has the same numbers here as in the command. */
const MATRICES = { /* 2^16 times what a step of a colour difference adds: red of V, blue of U, green of both */
  bt601: [104597, 132201, 25675, 53279],
  bt709: [117489, 138438, 13975, 34925],
  "bt2020-ncl": [110013, 140363, 12277, 42626],
};
const tablesOf = new Map();
/* Each product for each sample, rounded down by itself as FFmpeg does. */
function colourTables(matrix, full) {
  const key = matrix + full;
  if (tablesOf.has(key)) return tablesOf.get(key);
  const scaled = (MATRICES[matrix] ?? MATRICES.bt601).map((value) => (full ? Math.floor(value * 224 / 255) : value));
  const half = (value) => Math.min((value + 4) >> 3, 32767), table = (factor, zero) => Int32Array.from({ length: 256 }, (_, sample) => ((sample - zero) * 8 * factor) >> 16);
  const light = half(full ? 1 << 16 : Math.floor(65536 * 255 / 219)), [rv, bu, gu, gv] = scaled.map(half);
  const tables = { y: table(light, full ? 0 : 16), rv: table(rv, 128), bu: table(bu, 128), gu: table(-gu, 128), gv: table(-gv, 128) };
  tablesOf.set(key, tables);
  return tables;
}
/* The planes {y, u, v} of 4:2:0, each {data, at, stride, step}, as an image. */
function rgbOfPlanes({ y, u, v }, width, height, matrix, full) {
  const { y: light, rv, bu, gu, gv } = colourTables(matrix, full), data = new Uint8ClampedArray(3 * width * height);
  for (let row = 0, to = 0; row < height; row++) {
    const atY = y.at + row * y.stride, atU = u.at + (row >> 1) * u.stride, atV = v.at + (row >> 1) * v.stride;
    for (let x = 0; x < width; x++, to += 3) {
      const grey = light[y.data[atY + x]], blue = u.data[atU + (x >> 1) * u.step], red = v.data[atV + (x >> 1) * v.step];
      data[to] = grey + rv[red];
      data[to + 1] = grey + gu[blue] + gv[red];
      data[to + 2] = grey + bu[blue];
    }
  }
  return { width, height, channels: 3, data };
}
function rgbOfPixels({ width, height, data: pixels }) {
  const data = new Uint8ClampedArray(3 * width * height);
  for (let from = 0, to = 0; from < pixels.length; from += 4, to += 3) {
    data[to] = pixels[from];
    data[to + 1] = pixels[from + 1];
    data[to + 2] = pixels[from + 2];
  }
  return { width, height, channels: 3, data };
}
/* What a VideoFrame or an ImageBitmap shows: its planes where they can be had, with the shape of a sample, else what the
   browser draws. `known` is the matrix of its colours, where a file says it. */
async function rgbOf(frame, known = null) {
  const { format, visibleRect: seen } = frame;
  if (["I420", "NV12"].includes(format) && !frame.rotation && !frame.flip) {
    const data = new Uint8Array(frame.allocationSize()), layout = await frame.copyTo(data), { matrix, fullRange } = frame.colorSpace;
    const plane = (number, step = 1, from = 0) => ({ data, at: layout[number].offset + from, stride: layout[number].stride, step });
    const planes = format === "I420" ? { y: plane(0), u: plane(1), v: plane(2) } : { y: plane(0), u: plane(1, 2), v: plane(1, 2, 1) };
    const image = rgbOfPlanes(planes, seen.width, seen.height, known ?? matrix, Boolean(fullRange));
    return { ...image, aspect: frame.displayWidth * seen.height / (frame.displayHeight * seen.width) };
  }
  const width = frame.displayWidth ?? frame.width, height = frame.displayHeight ?? frame.height;
  const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  pen.drawImage(frame, 0, 0, width, height);
  return rgbOfPixels(pen.getImageData(0, 0, width, height));
}
