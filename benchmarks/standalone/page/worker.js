// Measures beside the page, by the clock: pages have no processor time.
import { measured } from './contest.mjs';
import { load } from './relaxd/index.js';

const read = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());

try {
  const job = JSON.parse(new TextDecoder().decode(await read('job.json')));
  const ort = job.peer ? await import('./ort/ort.wasm.min.mjs') : null;
  postMessage({ rows: await measured(job, { load, ort, read, now: () => performance.now() * 1000 }) });
} catch (error) {
  postMessage({ error: `${error.name}: ${error.message}` });
}
