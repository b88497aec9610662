// In a page: opens a bundle for WebGPU from files, and runs it. Files are read by XMLHttpRequest, since `fetch` reads none.
import { INPUT } from './npm/gpu.js';
import { loadGpu } from './npm/index.js';

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, float16: globalThis.Float16Array ?? Uint16Array, bfloat16: Uint16Array,
};
const PIECE = 0x8000;
let model;

/** Opens the bundle; gives whether its adapter is made of the processor. */
export async function open(urls) {
  const named = Object.entries(urls).map(async ([name, url]) => [name, await read(url)]);
  model = await loadGpu(Object.fromEntries(await Promise.all(named)));
  return model.emulated;
}

/** The outputs by name, and what the run has left in the inputs that it writes, as shapes and bytes in base64. */
export async function run(inputs, dims, written) {
  const given = inputs.map(async ({ name, dtype, url }) => [name, new (ARRAYS[dtype] ?? Uint8Array)(await read(url))]);
  const arrays = Object.fromEntries(await Promise.all(given)), outputs = await model.run(arrays, dims);
  for (const name of written) outputs[name] = { shape: inputs.find((one) => one.name === name).shape, data: await left(name, arrays[name].byteLength) };
  return Object.entries(outputs).map(([name, { shape, data }]) => ({ name, shape, data: base64(data) }));
}

async function left(name, bytes) {
  const { device, inputs, own } = model, from = own.buffers[INPUT][inputs.findIndex((one) => one.name === name)];
  const staging = model.buffer(from.size, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST), encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(from, 0, staging, 0, from.size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const data = new Uint8Array(staging.getMappedRange().slice(0, bytes));
  staging.destroy();
  return data;
}

const read = (url) => new Promise((resolve, reject) => {
  const request = new XMLHttpRequest();
  request.open('GET', url);
  request.responseType = 'arraybuffer';
  request.onload = () => resolve(request.response);
  request.onerror = () => reject(new Error(`${url} cannot be read`));
  request.send();
});

function base64({ buffer, byteOffset, byteLength }) {
  const bytes = new Uint8Array(buffer, byteOffset, byteLength), parts = [];
  for (let at = 0; at < bytes.length; at += PIECE) parts.push(String.fromCharCode(...bytes.subarray(at, at + PIECE)));
  return btoa(parts.join(''));
}
