import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LoadContractError, load, loadGpu } from 'relaxd';
import { changed, files, sha256 } from './bundle.mjs';

const SHADER = { name: 'k', code: '', size: [8, 8, 2], shared: 20000, buffers: 3, numbers: 1 };
const AMPLE = {
  maxStorageBuffersPerShaderStage: 8, maxComputeWorkgroupStorageSize: 32768, maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupSizeX: 256, maxComputeWorkgroupSizeY: 256, maxComputeWorkgroupSizeZ: 64,
  maxBufferSize: 1 << 28, maxStorageBufferBindingSize: 1 << 27,
};

/** The bundle as one for WebGPU, whose shaders stand in a section of its library. */
function forGpu(change = () => {}) {
  return changed((manifest, all) => {
    const name = 'relaxd.webgpu', content = JSON.stringify({ shaders: [SHADER], buffers: 0, late: [], checks: [] });
    const body = Buffer.concat([Buffer.of(name.length), Buffer.from(name + content)]);
    const length = Buffer.of(body.length % 128 | 128, body.length >> 7);
    all['model.wasm'] = Buffer.concat([all['model.wasm'], Buffer.of(0), length, body]);
    manifest.files['model.wasm'] = { sha256: sha256(all['model.wasm']), size: all['model.wasm'].length };
    manifest.load.device = 'webgpu';
    change(manifest);
  });
}

test('a bundle is loaded by what its device takes', async () => {
  await assert.rejects(load(forGpu()), { name: 'LoadContractError', hint: 'use loadGpu' });
  await assert.rejects(loadGpu(files()), { name: 'LoadContractError', hint: 'use load' });
});

test('an engine without WebGPU is told so', async () => {
  await assert.rejects(loadGpu(forGpu()), { name: 'LoadContractError', message: /no WebGPU adapter/ });
});

test('each limit of the adapter is checked before anything is made', async () => {
  for (const [name, least] of Object.entries({
    maxStorageBuffersPerShaderStage: 3, maxComputeWorkgroupStorageSize: 20000, maxComputeInvocationsPerWorkgroup: 128,
    maxComputeWorkgroupSizeX: 8, maxComputeWorkgroupSizeY: 8, maxComputeWorkgroupSizeZ: 2, maxBufferSize: 12,
    maxStorageBufferBindingSize: 12,
  })) {
    await assert.rejects(
      loadGpu(forGpu(), { device: { limits: { ...AMPLE, [name]: least - 1 } } }),
      (error) => error instanceof LoadContractError && error.details.limit === name && error.message.includes(`is ${least}, this one's is ${least - 1}`),
    );
  }
});

test('a shader that the device refuses is named', async () => {
  const device = {
    limits: AMPLE,
    createShaderModule: () => ({}),
    createComputePipelineAsync: () => Promise.reject(new Error('line 1')),
  };
  await assert.rejects(loadGpu(forGpu(), { device }), { name: 'LoadContractError', message: /the shader k: line 1/ });
});
