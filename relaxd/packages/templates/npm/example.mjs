// Runs @short@ once on made-up inputs, and prints the first numbers of its outputs.
import { open, shapes } from './index.js';

const Float16 = globalThis.Float16Array ?? Uint16Array; // of inputs of that type

// 0, 1/8 ... 7/8 for floats, 0 for whole numbers, which are good indices.
function numbers(shape, kind) {
  const all = new kind(shape.reduce((product, extent) => product * extent, 1));
  if (kind === Float32Array || kind === Float64Array) all.forEach((_, i) => { all[i] = (i % 8) / 8; });
  return all;
}

const model = await open();
const dims = {
@each dims@
  @dim@: @value@,
@end@
};
const inputs = {
@each inputs@
  @tensor@: numbers(shapes[@tensor@](dims), @type@),
@end@
};
for (const [name, { shape, data }] of Object.entries(await model.run(inputs, dims))) {
  console.log(name, `[${shape.join(' ')}]`, ...Array.from(data.slice(0, 8), Number));
}
model.close();
