/* The networks and the step of a model, by ONNX Runtime Web on the processor. */
const ARRAYS = { bool: Uint8Array, int64: BigInt64Array, float32: Float32Array };
const tensorOf = (type, values, dims) => new ort.Tensor(type, ARRAYS[type].from(values, type === "int64" ? BigInt : Number), dims);
const countOf = (shape) => shape.reduce((product, size) => product * size, 1);

/* Opens all graphs; `tell` hears of each. */
async function openModel({ streams, step, threads }, tell) {
  ort.env.wasm.numThreads = threads;
  ort.env.wasm.wasmPaths = new URL("../onnxruntime/", location.href).href;
  const open = async (name) => {
    const answer = await fetch(new URL("../graphs/" + name + ".onnx", location.href));
    if (!answer.ok) throw new Error("graphs/" + name + ".onnx cannot be read (" + answer.status + ")");
    const session = await ort.InferenceSession.create(new Uint8Array(await answer.arrayBuffer()), { executionProviders: ["wasm"] });
    tell(name);
    return session;
  };
  const networks = [];
  for (const { stream } of streams) networks.push(await open(stream));
  return { networks, step: await open(step.graph) };
}
/* Features of a chunk's frames, those of all streams one after the other. */
async function featuresOf(model, streams, rgbFrame, frames) {
  const parts = [];
  for (const [number, part] of streams.entries()) {
    const { data, dims } = viewOf(part, frames, rgbFrame);
    const { features } = await model.networks[number].run({ images: new ort.Tensor("uint8", data, dims) });
    parts.push(features.data);
  }
  const joined = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  parts.reduce((at, part) => { joined.set(part, at); return at + part.length; }, 0);
  return joined;
}
/* A stream before its first chunk: what it keeps, and how many chunks it has seen. */
function beginStream({ kept }) {
  const begun = ([name, { shape, dtype }]) => [name, new ort.Tensor(dtype, new ARRAYS[dtype](countOf(shape)).fill(dtype === "bool" ? 1 : 0), [1, ...shape])];
  return { kept: Object.fromEntries(Object.entries(kept).map(begun)), chunks: 0 };
}
/* Scores of the next chunk, and of those ahead: rows of probabilities. */
async function stepAhead(model, about, stream, features) {
  const feeds = { features: new ort.Tensor("float32", features, [1, features.length]) }, plan = planOf(about.plan, stream.chunks);
  for (const [name, [dims, type]] of Object.entries(about.inputs)) {
    if (name.startsWith("plan.")) feeds[name] = tensorOf(type, plan[name.slice(5)], dims);
    if (name.startsWith("before.")) feeds[name] = stream.kept[name.slice(7)];
  }
  const made = await model.step.run(feeds);
  for (const name of Object.keys(stream.kept)) stream.kept[name] = made["after." + name];
  stream.chunks++;
  const { data, dims: [, rows, width] } = made.scores;
  return Array.from({ length: rows }, (_, row) => data.slice(row * width, (row + 1) * width));
}
