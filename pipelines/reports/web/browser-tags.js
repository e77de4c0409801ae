/* Which matrix a file says that its colours were made with. Browsers guess where a file says nothing; FFmpeg does not, and
   takes that of BT.601. */
const TAGGED = { 1: "bt709", 5: "bt601", 6: "bt601", 9: "bt2020-ncl" };
const WITH_CHROMA = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135]; /* profiles that say how colour is sampled */

/* Reads bits of H.264's parameter sets, in which 3 after two zeros is not part of what is said. */
function bitReader(bytes) {
  const said = bytes.filter((byte, at) => !(byte === 3 && at > 1 && !bytes[at - 1] && !bytes[at - 2]));
  let at = 0;
  const bit = () => { if (at >= 8 * said.length) throw new RangeError("it is cut short"); return (said[at >> 3] >> (7 - (at++ & 7))) & 1; };
  const bits = (count) => { let value = 0; while (count--) value = value * 2 + bit(); return value; };
  const golomb = () => { let zeros = 0; while (!bit()) zeros++; return 2 ** zeros - 1 + bits(zeros); };
  const signed = () => { const value = golomb(); return value & 1 ? (value + 1) / 2 : -value / 2; };
  return { bits, golomb, signed };
}
function passScalingList({ signed }, size) {
  for (let number = 0, last = 8, next = 8; number < size; number++) {
    if (next) next = (last + signed() + 256) % 256;
    last = next || last;
  }
}
/* The number of the matrix in a sequence parameter set; 2 where it says none. */
function matrixInSet(bytes) {
  const reader = bitReader(bytes), { bits, golomb, signed } = reader;
  bits(8);
  const profile = bits(8);
  bits(16);
  golomb();
  if (WITH_CHROMA.includes(profile)) {
    const sampling = golomb();
    if (sampling === 3) bits(1);
    golomb();
    golomb();
    bits(1);
    if (bits(1)) for (let list = 0; list < (sampling === 3 ? 12 : 8); list++) if (bits(1)) passScalingList(reader, list < 6 ? 16 : 64);
  }
  golomb();
  const order = golomb();
  if (order === 0) golomb();
  if (order === 1) { bits(1); signed(); signed(); for (let number = golomb(); number; number--) signed(); }
  golomb();
  bits(1);
  golomb();
  golomb();
  if (!bits(1)) bits(1);
  bits(1);
  if (bits(1)) for (let side = 0; side < 4; side++) golomb();
  if (!bits(1)) return 2;
  if (bits(1) && bits(8) === 255) bits(32);
  if (bits(1)) bits(1);
  if (!bits(1)) return 2;
  bits(4);
  return bits(1) ? bits(24) & 255 : 2;
}
/* What a coding and its boxes say; null where only the decoder knows. */
function matrixOf(coding, config, colours) {
  const boxed = colours && ["nclx", "nclc"].includes(typeAt(colours, 0)) ? colours.getUint16(8) : 2;
  if (coding === "vp09") return TAGGED[config.getUint8(9)] ?? "bt601";
  if (!coding.startsWith("avc")) return TAGGED[boxed] ?? null;
  const set = config.getUint16(6), own = config.getUint8(5) & 31 ? matrixInSet(new Uint8Array(config.buffer, config.byteOffset + 8, set)) : 2;
  return TAGGED[own] ?? TAGGED[boxed] ?? "bt601";
}
