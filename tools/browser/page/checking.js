// Pulls a bundle, runs it at every shape, and compares with what ONNX Runtime gave.
import { load, loadGpu, pull } from './relaxd/index.js';

const ARRAYS = {
  float32: Float32Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array, uint8: Uint8Array,
};
const LEAST_MS = 200;
const SHORT_MS = 5;

/** Reports `{kind: 'progress' | 'facts' | 'row' | 'end', ...}` as it goes. */
export async function check(plan, report) {
  const began = performance.now();
  const onProgress = (done, total) => report({ kind: 'progress', done, total });
  const files = await pull(plan.server, plan.reference, { onProgress });
  const pulled = performance.now();
  const device = JSON.parse(new TextDecoder().decode(files['manifest.json'])).load.device;
  const model = device === 'webgpu' ? await loadGpu(files) : await load(files, { threads: plan.threads ?? undefined });
  const loaded = performance.now();
  report({
    kind: 'facts',
    facts: {
      model: model.manifest.name,
      bundle: plan.reference,
      target: model.manifest.target.name,
      ...(model.info && { adapter: `${model.info.vendor} ${model.info.architecture}${model.emulated ? ', emulated' : ''}` }),
      ...((model.threads > 1 || model.lacking) && { threads: `${model.threads}${model.lacking ? `: ${model.lacking}` : ''}` }),
      library: `${(files[model.manifest.library].length / 1024).toFixed(1)} KiB`,
      weights: `${((files['weights.bin']?.length ?? 0) / 2 ** 20).toFixed(1)} MiB`,
      pulled: `${(pulled - began).toFixed(0)} ms, every sha256 checked`,
      loaded: `${(loaded - pulled).toFixed(0)} ms`,
    },
  });
  let near = true;
  for (const point of plan.points) {
    for (const row of await measured(model, point, plan.tolerance)) {
      near &&= row.near;
      report({ kind: 'row', ...row });
    }
  }
  // Runs of a GPU may overlap, those of other dims too.
  const overlapped = await Promise.all(plan.overlap ? plan.points.map((point) => compared(model, point, plan.tolerance)) : []);
  report({ kind: 'end', near: near && overlapped.flat().every((row) => row.near) });
}

async function measured(model, point, tolerance) {
  const rows = await compared(model, point, tolerance), inputs = await arrays(point.inputs);
  const ms = await timed(() => model.run(inputs, point.dims));
  return rows.map((row) => ({ ...row, ms }));
}

async function compared(model, point, tolerance) {
  const inputs = await arrays(point.inputs), wanted = await arrays(point.outputs);
  const outputs = await model.run(inputs, point.dims);
  return point.outputs.map(({ name }) => {
    const { shape, data } = outputs[name], want = wanted[name];
    let difference = data.length === want.length ? 0 : Infinity;
    data.forEach((value, i) => {
      const one = Math.abs(Number(value) - Number(want[i]));
      // A comparison with NaN is false, which must not count as near.
      if (!(one <= difference)) difference = one;
    });
    return { dims: point.dims, name, shape, difference, near: difference <= tolerance };
  });
}

async function arrays(specs) {
  const found = await Promise.all(specs.map(async ({ name, dtype, url }) => {
    const answer = await fetch(url);
    return [name, new ARRAYS[dtype](await answer.arrayBuffer())];
  }));
  return Object.fromEntries(found);
}

/** The least time of a run; runs too short for the page's clock are timed together. */
async function timed(run) {
  let least = Infinity, together = 1;
  for (let total = 0; total < LEAST_MS;) {
    const began = performance.now();
    for (let i = 0; i < together; ++i) await run();
    const took = performance.now() - began;
    least = Math.min(least, took / together);
    if (took < SHORT_MS) [together, least] = [together * 8, Infinity];
    total += took;
  }
  return least;
}
