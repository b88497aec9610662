// Threads of a module that imports its memory: workers, each with an instance of the module over the same memory.
import { InputError, LoadContractError } from './errors.js';
import { instance } from './model.js';

const ofNode = (name) => import(/* webpackIgnore: true */ `node:${name}`);
const PAGES = 65536, STACK = 256 << 10, MOST = 32, USUAL = 4;

/** An instance of the module with its threads; `lacking` says why there is one alone. */
export async function start(module, library, entry, wanted) {
  if (wanted !== undefined && !(Number.isInteger(wanted) && wanted >= 1 && wanted <= MOST)) {
    throw new InputError(`threads is ${wanted}`, { hint: `take 1 to ${MOST}, or leave it out` });
  }
  const memory = shared(library), exports = await instance(module, { env: { memory } });
  const team = { exports, threads: 1, workers: [] };
  team.close = () => {
    team.workers.splice(0).forEach((worker) => worker.terminate());
    exports[`${entry}_team`](0, 0);
    team.threads = 1;
  };
  const threads = wanted ?? Math.min(USUAL, await cores());
  team.lacking = threads > 1 ? lacking() : undefined;
  if (threads === 1 || team.lacking) return team;
  try {
    const jobs = Array.from({ length: threads - 1 }, (_, i) => {
      const stack = exports[`${entry}_allocate`](STACK) >>> 0;
      if (!stack) throw new Error('out of memory: cannot allocate the stacks of threads');
      return { module, memory, entry, number: i + 1, stack: stack + STACK };
    });
    await Promise.all(jobs.map((job) => helper(job, team.workers)));
    exports[`${entry}_team`](jobs.length, Number(mayWait(memory)));
    team.threads = threads;
  } catch (error) {
    team.close();
    team.lacking = `its workers did not start: ${error.message}`;
  }
  return team;
}

function lacking() {
  if (globalThis.crossOriginIsolated === false) {
    return 'the page is not cross-origin isolated: serve it with Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp';
  }
  return globalThis.Worker || globalThis.process?.versions?.node ? undefined : 'workers cannot be started here';
}

const cores = async () => globalThis.navigator?.hardwareConcurrency ?? (await ofNode('os')).cpus().length;

/** Resolves once the worker is at work. */
async function helper(job, workers) {
  // Deno's own workers keep a program from ending.
  const worker = globalThis.Worker && !globalThis.Deno
    ? new Worker(new URL('./helper.js', import.meta.url), { type: 'module' })
    : new (await ofNode('worker_threads')).Worker(new URL('./helper.js', import.meta.url));
  const on = (name, call) => (worker.on ?? worker.addEventListener).call(worker, name, call);
  workers.push(worker);
  await new Promise((resolve, reject) => {
    on('message', resolve);
    on('error', (event) => reject(new Error(event.message || 'helper.js cannot be loaded')));
    worker.postMessage(job);
  });
  // Node ends although they run.
  worker.unref?.();
}

/** Memory of as many pages as the engine grants; the module takes at most 4 GiB. */
function shared(library) {
  const initial = pagesOf(library);
  for (let maximum = PAGES; ; maximum /= 2) {
    try {
      return new WebAssembly.Memory({ initial, maximum, shared: true });
    } catch (cause) {
      if (maximum / 2 >= initial && maximum > 1024) continue;
      throw new LoadContractError(`this engine gives no shared memory: ${cause.message}`, { cause, hint: 'compile with --target wasm32-simd' });
    }
  }
}

/** The least pages of the memory that a module imports, and it imports nothing else. */
function pagesOf(bytes) {
  let at = 8;
  const number = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  const skip = (count) => { at += count; };
  while (bytes[at++] !== 2) skip(number());
  number(), number();
  skip(number()), skip(number());
  skip(2);
  return number();
}

/** Whether this thread may sleep, as a page may not. */
function mayWait(memory) {
  try {
    // Another value than this address has is no reason to wait.
    const words = new Int32Array(memory.buffer);
    return Atomics.wait(words, 0, words[0] + 1, 0) === 'not-equal';
  } catch {
    return false;
  }
}
