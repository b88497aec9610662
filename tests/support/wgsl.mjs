// Compiles WGSL with Dawn, the WebGPU of Chromium, on no device: `NODE_PATH=.../node_modules node wgsl.mjs FILE...`.
// Prints as JSON what it says of each file that it refuses.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const found = createRequire(import.meta.url).resolve('webgpu');
const { create } = await import(pathToFileURL(found));
// What is no longer referred to is collected, and takes what it made along.
const gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
// No limit is asked for: what a browser grants everybody has to do.
const device = await adapter.requestDevice();
const refused = {};
for (const file of process.argv.slice(2)) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code: readFileSync(file, 'utf8') });
  await device.popErrorScope();
  const errors = (await module.getCompilationInfo()).messages.filter((message) => message.type === 'error');
  if (errors.length) {
    refused[file] = errors.map((message) => `line ${message.lineNum}: ${message.message}`).join('\n');
    continue;
  }
  try {
    await device.createComputePipelineAsync({ layout: 'auto', compute: { module } });
  } catch (error) {
    refused[file] = error.message;
  }
}
console.log(JSON.stringify(refused));
device.destroy();
