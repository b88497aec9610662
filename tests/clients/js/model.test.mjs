import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BundleError, ExecutionError, InputError, LoadContractError, RelaxdError, load, targets } from 'relaxd';
import { changed, files, withLibrary } from './bundle.mjs';

const WEIGHTS = [0.5, 2, -1];
const ramp = (count, first = 1) => Float32Array.from({ length: count }, (_, i) => first + i);
const wanted = (x, bias = 0) => x.map((value, i) => value * WEIGHTS[i % 3] + bias);

test('a model runs at every dim, with defaults', async () => {
  const model = await load(files());
  for (const n of [1, 7, 500, 2]) {
    const x = ramp(6 * n), { y, kept } = model.run({ x }, { n });
    assert.deepEqual(y.shape, [2 * n, 3]);
    assert.deepEqual(y.data, wanted(x));
    assert.deepEqual([kept.shape, kept.data], [[6 * n], x]);
  }
});

test('an extent that only the run knows may be zero', async () => {
  const { kept } = (await load(files())).run({ x: new Float32Array(6) }, { n: 1 });
  assert.deepEqual([kept.shape, kept.data.length], [[0], 0]);
});

test('what a run gave stays as it is', async () => {
  const model = await load(files());
  const first = model.run({ x: ramp(6) }, { n: 1 }).y, copy = first.data.slice();
  model.run({ x: ramp(6, 50) }, { n: 1 });
  assert.deepEqual(first.data, copy);
});

test('contexts have dims and memory of their own', async () => {
  const model = await load(files()), one = model.context(), two = model.context();
  one.bind({ n: 1 });
  two.bind({ n: 4 });
  const bias = BigInt64Array.of(3n);
  for (let i = 0; i < 3; ++i) {
    assert.deepEqual(one.run({ x: ramp(6) }).y.data, wanted(ramp(6)));
    assert.deepEqual(two.run({ x: ramp(24), bias }).y.data, wanted(ramp(24), 3));
  }
  one.close();
  assert.deepEqual(two.run({ x: ramp(24) }).y.data, wanted(ramp(24)));
});

test('memory that grows in a run is seen', async () => {
  const model = await load(files()), x = ramp(6);
  x[0] = 3000;
  for (let i = 0; i < 3; ++i) assert.deepEqual(model.run({ x }, { n: 1 }).y.data, wanted(x));
});

test('dims that change take no more memory in the end', async () => {
  const model = await load(files());
  for (const n of [60000, 1, 60000]) model.run({ x: ramp(6 * n) }, { n });
  const before = model.memory.buffer.byteLength;
  for (let i = 0; i < 20; ++i) model.run({ x: ramp(i % 2 ? 6 : 360000) }, { n: i % 2 ? 1 : 60000 });
  assert.equal(model.memory.buffer.byteLength, before);
});

test('what a call gets wrong is named', async () => {
  const model = await load(files());
  const cases = [
    [{ x: ramp(6) }, { n: 0 }, /n must be 1 to 65536/],
    [{ x: ramp(6) }, { n: 1.5 }, /dim n is 1.5/],
    [{ x: ramp(6) }, {}, /dim n is undefined/],
    [{ x: ramp(6) }, { n: 1, m: 2 }, /no dim m .*its dims: n/],
    [{ x: ramp(5) }, { n: 1 }, /input x has 5 values, it must have 6 .*2 \* n, 3/],
    [{ x: new Float64Array(6) }, { n: 1 }, /input x is a Float64Array .*Float32Array/],
    [{}, { n: 1 }, /input x is missing/],
    [{ x: ramp(6), z: ramp(6) }, { n: 1 }, /no input z .*its inputs: x, bias/],
    [{ x: ramp(6), bias: Float32Array.of(1) }, { n: 1 }, /BigInt64Array/],
  ];
  for (const [inputs, dims, message] of cases) {
    assert.throws(() => model.run(inputs, dims), (error) => {
      assert.ok(error instanceof InputError && error instanceof RelaxdError);
      assert.equal(error.code, 'run.input');
      assert.match(error.message, message);
      return true;
    });
  }
  assert.deepEqual(model.run({ x: ramp(6) }, { n: 1 }).y.data, wanted(ramp(6)));
  assert.throws(() => model.context().run({ x: ramp(6) }), InputError);
});

test('what fails in the library is an error with its sentence', async () => {
  const model = await load(files()), x = ramp(6);
  for (const [first, sentence] of [[1000, /kernel 'byhand' failed/], [2000, /extents differ/]]) {
    x[0] = first;
    assert.throws(() => model.run({ x }, { n: 1 }), (error) => {
      assert.ok(error instanceof ExecutionError);
      assert.match(error.message, sentence);
      return true;
    });
  }
});

test('memory that ends is an error, and the model goes on', async () => {
  const model = await load(files()), small = model.context();
  small.bind({ n: 1 });
  assert.throws(() => model.take(2 ** 32 - 2 ** 20), ExecutionError);
  assert.deepEqual(small.run({ x: ramp(6) }).y.data, wanted(ramp(6)));
});

test('a bundle that is incomplete or altered is refused', async () => {
  const damaged = files();
  damaged['weights.bin'] = Uint8Array.from(damaged['weights.bin'], (byte) => byte ^ 1);
  const { 'weights.bin': _, ...lacking } = files();
  const cases = [
    [damaged, /weights.bin does not have the sha256/],
    [lacking, /lacks weights.bin/],
    [changed((manifest) => { manifest.schema_version = 2; }), /schema version 2/],
    [changed((manifest) => { manifest.inputs[0].shape = ['2 *']; }), /axis 2 \*/],
    [{ ...files(), 'manifest.json': Buffer.from('{') }, /not JSON/],
  ];
  for (const [bundle, message] of cases) await assert.rejects(load(bundle), { code: 'bundle.invalid', message });
});

test('a bundle for another machine, or that this engine does not take, says what to compile', async () => {
  const other = changed((manifest) => { manifest.load.arch = 'x86_64'; });
  await assert.rejects(load(other), { code: 'bundle.load_contract', message: /x86_64 .*wasm32-simd/ });
  const strange = withLibrary(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 99));
  await assert.rejects(load(strange), (error) => error instanceof LoadContractError && /wasm32/.test(error.message));
});

test('a library that imports anything is refused', async () => {
  // (module (import "host" "f" (func)))
  const importing = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 2, 10, 1, 4, 104, 111, 115, 116, 1, 102, 0, 0);
  await assert.rejects(load(withLibrary(importing)), (error) => error instanceof BundleError && /host\.f/.test(error.message));
});

test('files may come in any kind of bytes, and in a Map', async () => {
  const apart = Object.entries(files()).map(([name, bytes]) => [name, new Uint8Array(bytes).buffer]);
  for (const bundle of [new Map(apart), Object.fromEntries(apart)]) {
    assert.deepEqual((await load(bundle)).run({ x: ramp(6) }, { n: 1 }).y.data, wanted(ramp(6)));
  }
});

test('this engine runs vectors', () => {
  assert.ok(targets().includes('wasm32-simd'));
  assert.equal(targets().at(-1), 'wasm32');
});
