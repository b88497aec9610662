// Plays a list of calls of a state: `node state.mjs PACKAGE BUNDLE`; prints what each gave.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const [, , source, bundle] = process.argv;
const { load } = await import(join(source, 'index.js'));
const names = ['manifest.json', 'model.wasm', 'weights.bin'];
const model = await load(Object.fromEntries(names.map((name) => [name, readFileSync(join(bundle, name))])));
const { options, calls } = JSON.parse(readFileSync(join(bundle, 'calls.json')));
const state = await model.state(options);
const found = calls.map(([name, ...given]) => {
  if (name === 'step') given[0] = Object.fromEntries(Object.entries(given[0]).map(([key, ids]) => [key, BigInt64Array.from(ids, BigInt)]));
  try {
    const gave = state[name](...given);
    return { gave: gave && { shape: gave.logits.shape, data: Array.from(gave.logits.data) }, lengths: state.lengths };
  } catch ({ code, message }) {
    return { code, message, lengths: state.lengths };
  }
});
const bytesOfRows = [...state.buffers.values()].map(({ row }) => row);
const free = state.free.map(({ name }) => name), { capacity, ragged } = state;
state.close();
console.log(JSON.stringify({ found, free, capacity, ragged, bytesOfRows, bytes: model.memory.buffer.byteLength }));
