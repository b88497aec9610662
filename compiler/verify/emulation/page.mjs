// In a page: opens a bundle for WebGPU from files, and runs it. Files are read by XMLHttpRequest, since `fetch` reads none.
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

/** The outputs by name, as shapes and bytes in base64. */
export async function run(inputs, dims) {
  const given = inputs.map(async ({ name, dtype, url }) => [name, new (ARRAYS[dtype] ?? Uint8Array)(await read(url))]);
  const outputs = await model.run(Object.fromEntries(await Promise.all(given)), dims);
  return Object.entries(outputs).map(([name, { shape, data }]) => ({ name, shape, data: base64(data) }));
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
