// Measures by the clock: pages have no processor time.
import { measured } from './contest.mjs';
import { litert, onnxruntime } from './peers.mjs';
import { load, loadGpu } from './relaxd/index.js';

const read = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());

export const readJob = async () => JSON.parse(new TextDecoder().decode(await read('job.json')));

export async function measure(job) {
  const open = job.peer && await opener(job);
  return measured(job, { load: job.provider === 'webgpu' ? loadGpu : load, open, read, now: () => performance.now() * 1000 });
}

async function opener({ provider, peerThreads }) {
  if (provider === 'litert') return litert(await import('./litert/index.js'), './litert/wasm/');
  return onnxruntime(await import(`./ort/ort.${provider}.min.mjs`), peerThreads, provider);
}
