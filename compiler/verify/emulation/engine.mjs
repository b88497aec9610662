// node engine.mjs LIBRARY PREFIX WEIGHTS INPUTS OUTPUTS WRITTEN [DIM=VALUE]...: one run of a model in WebAssembly.
// WRITTEN: positions of inputs that the run writes, with commas between; they come behind the outputs.
// INPUTS and OUTPUTS are files of tensors: a count, then for each its code, bits, rank, extents (int64) and values.
import { readFileSync, writeFileSync } from 'node:fs';

const [library, prefix, weightsFile, inputsFile, outputsFile, written, ...given] = process.argv.slice(2);
const CODES = { int: 0, uint: 1, float: 2, bfloat: 4, bool: 6 };
const HEADER = 24;

const { exports } = await opened(readFileSync(library));
const call = (name, ...values) => exports[`${prefix}_${name}`](...values);
const view = () => new DataView(exports.memory.buffer);
const bytes = (at, length) => new Uint8Array(exports.memory.buffer, at, length);
const word = (at) => view().getUint32(at, true);

/** An instance of the library; with two threads where it takes several. */
async function opened(content) {
  const module = await WebAssembly.compile(content);
  if (!WebAssembly.Module.imports(module).length) return WebAssembly.instantiate(module);
  const { start } = await import('./npm/threads.js');
  const team = await start(module, content, prefix, 2);
  if (team.lacking) throw new Error(team.lacking);
  return team;
}

function text(at) {
  const all = new Uint8Array(exports.memory.buffer);
  return Buffer.from(all.subarray(at, all.indexOf(0, at))).toString();
}

function take(length) {
  const at = call('allocate', Math.max(length, 1)) >>> 0;
  if (!at) throw new Error(`out of memory: nothing is left for ${length} bytes`);
  return at;
}

function hold(content) {
  const at = take(content.length);
  bytes(at, content.length).set(content);
  return at;
}

function check(status) {
  if (status) throw new Error(text(call('failure', context)) || `status ${status}`);
}

/** The header and the values of each tensor in a file. */
function tensors(file) {
  const data = readFileSync(file), found = [];
  let at = 8;
  const next = () => Number(data.readBigInt64LE((at += 8) - 8));
  for (let count = Number(data.readBigInt64LE(0)); count > 0; --count) {
    const start = at, [, bits, rank] = [next(), next(), next()];
    let size = bits / 8;
    for (let axis = 0; axis < rank; ++axis) size *= next();
    found.push({ head: data.subarray(start, at), values: data.subarray(at, at += size) });
  }
  return found;
}

function header(...numbers) {
  const made = Buffer.alloc(8 * numbers.length);
  numbers.forEach((number, i) => made.writeBigInt64LE(BigInt(number), 8 * i));
  return made;
}

/** The output, as a file of tensors has it. */
function output(i) {
  const row = word(table + HEADER) + 20 * i, item = view().getInt32(row + 8, true), rank = view().getInt32(row + 12, true);
  const kind = text(word(row + 4)).replace(/\d+$/, '');
  const at = call('shape', context, i), shape = Array.from({ length: rank }, (_, axis) => Number(view().getBigInt64(at + 8 * axis, true)));
  const size = shape.reduce((n, extent) => n * extent, item);
  return [header(CODES[kind], 8 * item, rank, ...shape), Buffer.from(bytes(call('output', context, i) >>> 0, size).slice())];
}

const table = call('interface');
const weights = weightsFile ? hold(readFileSync(weightsFile)) : 0;
const context = take(call('size'));
check(call('open', context, weights, 0));
const values = Object.fromEntries(given.map((pair) => pair.split('=')));
const dims = Array.from({ length: view().getInt32(table + 12, true) }, (_, i) => values[text(word(word(table + 28) + 32 * i))]);
const bound = Number(call('bind', context, hold(header(...dims))));
if (bound < 0) check(-bound);
check(call('arena', context, take(bound)));
const inputs = tensors(inputsFile), pointers = inputs.map(({ values }) => hold(values)), vector = take(4 * pointers.length);
pointers.forEach((at, i) => view().setUint32(vector + 4 * i, at, true));
check(call('run', context, vector, 0));
const count = view().getInt32(table + 8, true);
const results = Array.from({ length: count }, (_, i) => output(i));
for (const i of written.split(',').filter(Boolean).map(Number)) {
  results.push([inputs[i].head, Buffer.from(bytes(pointers[i], inputs[i].values.length).slice())]);
}
writeFileSync(outputsFile, Buffer.concat([header(results.length), ...results.flat()]));
