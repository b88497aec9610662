// node threads.mjs PACKAGE FOLDER: a bundle at every point of points.json with one thread, two and three; prints
// what each number of threads gave and what was refused.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';

const [folder, bundle] = process.argv.slice(2);
const { load, targets } = await import(`${folder}/index.js`);
const names = ['manifest.json', 'model.wasm', 'weights.bin'];
const files = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await readFile(`${bundle}/${name}`)])));
const points = JSON.parse(await readFile(`${bundle}/points.json`, 'utf8'));
const every = (model) => points.map(({ dims, ids }) => [...model.run({ ids: BigInt64Array.from(ids, BigInt) }, dims).y.data]);

const found = {};
for (const threads of [1, 2, 3]) {
  const model = await load(files, { threads });
  assert.deepEqual([model.threads, model.lacking], [threads, undefined]);
  // The library's table says that kernels share out their loops.
  assert.equal(new DataView(model.memory.buffer).getInt32(model.calls.interface() + 16, true), 1);
  const first = every(model), context = model.context();
  // Runs in turns with those of another context, and once more, with other shapes before them.
  context.bind(points[1].dims);
  for (let i = 0; i < 20; ++i) {
    assert.deepEqual([...context.run({ ids: BigInt64Array.from(points[1].ids, BigInt) }).y.data], first[1]);
    assert.deepEqual(every(model), first);
  }
  found[threads] = first;
  model.close();
  assert.equal(model.threads, 1);
  assert.deepEqual(every(model), first);
}
for (const threads of [0, 1.5, 33]) await assert.rejects(load(files, { threads }), { code: 'run.input', message: /1 to 32/ });
assert.ok((await load(files)).threads >= 1);

assert.equal(targets()[0], 'wasm32-threads');
// A page that is not isolated.
globalThis.crossOriginIsolated = false;
assert.ok(!targets().includes('wasm32-threads'));
const alone = await load(files, { threads: 2 });
assert.equal(alone.threads, 1);
assert.match(alone.lacking, /not cross-origin isolated.*Cross-Origin-Embedder-Policy/);
assert.deepEqual(every(alone), found[1]);
console.log(JSON.stringify(found));
