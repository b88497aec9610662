// Calls of WebAssembly modules and of onnxruntime-web in turns, in node and in a page's worker.

const SAMPLE_US = 20_000, MOST_CALLS = 5000, WARM_US = 300_000;
const ARRAYS = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array };

/**
 * Seconds of a call in each round, by engine, for each case of the job.
 * platform: `load` of the npm package; `open` of peers.mjs, null without a peer; `read` gives a file's bytes; `now` the
 * microseconds that have passed.
 */
export async function measured(job, platform) {
  const rows = [];
  for (const subject of job.subjects) rows.push(...await rowsOf(subject, job, platform));
  return rows;
}

async function rowsOf({ label, bundle, names, model, cases }, job, { load, open, read, now }) {
  const files = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await read(`${bundle}/${name}`)])));
  const models = await Promise.all(job.threads.map((threads) => load(files, { threads })));
  const alone = models.find(({ threads }, i) => threads !== job.threads[i]);
  if (alone) throw new Error(`${label}: ${alone.lacking}`);
  const session = open && await open(await read(model));
  const rows = [];
  for (const one of cases) {
    const given = await Promise.all(one.inputs.map(async (input) => ({ ...input, data: arrayOf(input.dtype, await read(input.file)) })));
    const inputs = Object.fromEntries(given.filter(({ fixed }) => !fixed).map(({ name, data }) => [name, data]));
    const contexts = models.map((each) => each.context());
    contexts.forEach((context) => context.bind(one.dims));
    const calls = Object.fromEntries(contexts.map((context, i) => [`ours ${job.threads[i]}`, () => context.run(inputs)]));
    if (session) {
      const feed = session.feed(given), want = await session.run(feed);
      for (const context of contexts) {
        const found = await context.run(inputs);
        for (const name of Object.keys(want)) near(found[name].data, want[name], `${one.label} ${name}`);
      }
      calls.peer = () => session.run(feed);
    }
    rows.push({ label: one.label, ...await contest(calls, job.rounds, now) });
    contexts.forEach((context) => context.close());
  }
  models.forEach((each) => each.close?.());
  await session?.close();
  return rows;
}

function arrayOf(dtype, bytes) {
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

async function contest(calls, rounds, now) {
  const names = Object.keys(calls), counts = {}, seconds = {};
  for (const name of names) {
    const once = await warm(calls[name], now);
    counts[name] = Math.max(1, Math.min(MOST_CALLS, Math.floor(SAMPLE_US / once)));
    seconds[name] = [];
  }
  for (let round = 0; round < rounds; ++round) {
    for (let i = 0; i < names.length; ++i) {
      const name = names[(i + round) % names.length];
      seconds[name].push(await spent(calls[name], counts[name], now) / counts[name] / 1e6);
    }
  }
  return seconds;
}

// Until the engine has compiled what is hot.
async function warm(call, now) {
  let calls = 0, used = 0;
  for (; used < WARM_US && calls < MOST_CALLS; ++calls) used += await spent(call, 1, now);
  return Math.max(used / calls, 0.1);
}

async function spent(call, count, now) {
  const began = now();
  for (let i = 0; i < count; ++i) {
    const result = call();
    if (result instanceof Promise) await result;
  }
  return now() - began;
}
