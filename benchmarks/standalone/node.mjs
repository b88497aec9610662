// Has engines measured in node: `node node.mjs JOB.json`.
import { readFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import { measured } from './contest.mjs';
import { onnxruntime } from './peers.mjs';

const job = JSON.parse(await readFile(process.argv[2], 'utf8'));
const { load } = await import(pathToFileURL(job.package));
const open = job.peer && onnxruntime(await import(pathToFileURL(`${job.peer}/ort.node.min.mjs`)), job.peerThreads, 'wasm');
console.log(JSON.stringify(await measured(job, { load, open, read: readFile, now: job.clock ? clock : used })));

function clock() {
  return performance.now() * 1000;
}

/** Processor time of all threads. */
function used() {
  const { user, system } = process.cpuUsage();
  return user + system;
}
