// Calls of a WebAssembly module and of onnxruntime-web in turns: `node web.mjs JOB.json`.
// The job says with how many threads each computes, and whether processor time is taken or the clock's.
import { readFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

const SAMPLE_US = 20_000, MOST_CALLS = 5000, WARM_US = 300_000;
const ARRAYS = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array };
const job = JSON.parse(await readFile(process.argv[2], 'utf8'));
const { load } = await import(pathToFileURL(job.package));
const peer = job.peer ? await runtime(job.peer) : null;
const results = [];
for (const subject of job.subjects) results.push(...await rowsOf(subject));
console.log(JSON.stringify(results));

async function runtime(folder) {
  const ort = await import(pathToFileURL(`${folder}/node_modules/onnxruntime-web/dist/ort.node.min.mjs`));
  ort.env.wasm.numThreads = job.peerThreads;
  ort.env.logLevel = 'error';
  return ort;
}

async function rowsOf({ label, bundle, names, onnx, cases }) {
  const files = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await readFile(`${bundle}/${name}`)])));
  const models = await Promise.all(job.threads.map((threads) => load(files, { threads })));
  const alone = models.find((model, i) => model.threads !== job.threads[i]);
  if (alone) throw new Error(`${label}: ${alone.lacking}`);
  const session = peer && await peer.InferenceSession.create(await readFile(onnx), { executionProviders: ['wasm'] });
  const rows = [];
  for (const one of cases) {
    const given = await Promise.all(one.inputs.map(async (input) => ({ ...input, data: await content(input) })));
    const inputs = Object.fromEntries(given.filter(({ fixed }) => !fixed).map(({ name, data }) => [name, data]));
    const contexts = models.map((model) => model.context());
    contexts.forEach((context) => context.bind(one.dims));
    const calls = Object.fromEntries(contexts.map((context, i) => [`ours ${job.threads[i]}`, () => context.run(inputs)]));
    if (session) {
      const feed = Object.fromEntries(given.map(({ name, dtype, shape, data }) => [name, new peer.Tensor(dtype, data, shape)]));
      const want = await session.run(feed);
      for (const context of contexts) {
        const found = context.run(inputs);
        for (const name of session.outputNames) near(found[name].data, want[name].data, `${one.label} ${name}`);
      }
      calls.peer = () => session.run(feed);
    }
    rows.push({ label: one.label, ...await contest(calls) });
    contexts.forEach((context) => context.close());
  }
  models.forEach((model) => model.close());
  return rows;
}

async function content({ file, dtype }) {
  const bytes = await readFile(file);
  return new ARRAYS[dtype](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

function near(found, want, where) {
  let most = 0, range = 0;
  for (let i = 0; i < want.length; ++i) {
    most = Math.max(most, Math.abs(Number(found[i]) - Number(want[i])));
    range = Math.max(range, Math.abs(Number(want[i])));
  }
  if (found.length !== want.length || !(most <= 1e-3 * Math.max(range, 1e-6))) throw new Error(`${where} differs by ${most} of ${range}`);
}

async function contest(calls) {
  const names = Object.keys(calls), counts = {}, seconds = {};
  for (const name of names) {
    const once = await warm(calls[name]);
    counts[name] = Math.max(1, Math.min(MOST_CALLS, Math.floor(SAMPLE_US / once)));
    seconds[name] = [];
  }
  for (let round = 0; round < job.rounds; ++round) {
    for (let i = 0; i < names.length; ++i) {
      const name = names[(i + round) % names.length];
      seconds[name].push(await spent(calls[name], counts[name]) / counts[name] / 1e6);
    }
  }
  return seconds;
}

// Until the engine has compiled what is hot.
async function warm(call) {
  let calls = 0, used = 0;
  for (; used < WARM_US && calls < MOST_CALLS; ++calls) used += await spent(call, 1);
  return Math.max(used / calls, 0.1);
}

async function spent(call, count) {
  const before = process.cpuUsage(), began = performance.now();
  for (let i = 0; i < count; ++i) {
    const result = call();
    if (result instanceof Promise) await result;
  }
  const { user, system } = process.cpuUsage(before);
  return job.clock ? (performance.now() - began) * 1000 : user + system;
}
