// What this engine's WebAssembly has, and the targets that it can therefore run.

const module = (...rest) => Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, ...rest);
const returnsVector = [1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0];
// i8x16.popcnt of a splat, and f32x4.relaxed_madd of three.
const SIMD = module(...returnsVector, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11);
const splat = [65, 0, 253, 17];
const RELAXED = module(
  ...returnsVector, 10, 19, 1, 17, 0, ...splat, ...splat, ...splat, 253, 133, 2, 11,
);
// A memory that threads share.
const THREADS = module(5, 4, 1, 3, 1, 1);

/** The registry's targets that this engine can run, the fastest first. */
export function targets() {
  const found = ['wasm32'];
  if (WebAssembly.validate(SIMD)) found.unshift('wasm32-simd');
  if (WebAssembly.validate(RELAXED)) found.unshift('wasm32-relaxed-simd');
  const isolated = globalThis.crossOriginIsolated !== false && globalThis.navigator?.hardwareConcurrency !== 1;
  if (isolated && found.length > 1 && WebAssembly.validate(THREADS)) found.unshift('wasm32-threads');
  return found;
}
