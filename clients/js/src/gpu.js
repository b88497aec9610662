// A model whose kernels run on WebGPU: its WebAssembly module says which buffers there are and what to launch.
import { ExecutionError, InputError, LoadContractError } from './errors.js';
import { Context, Model, arrayOf, instance, opened } from './model.js';

const SECTION = 'relaxd.webgpu';
export const INPUT = 1;
const SLOT = 2;
const SCOPES = ['validation', 'out-of-memory', 'internal'];
const MOST_BLOCKS = 65535;
const SIZES = ['maxBufferSize', 'maxStorageBufferBindingSize'];
const READ = 1, COPY_SRC = 4, COPY_DST = 8, UNIFORM = 64, STORAGE = 128;
const whole = (bytes) => Math.max(Math.ceil(bytes / 4) * 4, 4);

/** As `load`, for a bundle whose target is webgpu. */
export async function loadGpu(files, { device, powerPreference } = {}) {
  const { manifest, module, weights } = await opened(files, 'webgpu');
  const [section] = WebAssembly.Module.customSections(module, SECTION);
  const table = JSON.parse(new TextDecoder().decode(section));
  const needs = needsOf(manifest, table, weights);
  const adapter = device ? null : await adapterFor(powerPreference);
  refuse(needs, (adapter ?? device).limits);
  if (adapter) {
    const wanted = Object.fromEntries(SIZES.map((name) => [name, adapter.limits[name]]));
    device = await adapter.requestDevice({ requiredLimits: { ...needs, ...wanted } });
  }
  const launch = (...given) => model.running.launch(...given);
  const exports = await instance(module, { relaxd: { launch } });
  const pipelines = await Promise.all(table.shaders.map((shader) => pipelineOf(device, shader)));
  const model = new GpuModel(manifest, exports, { device, table, pipelines, info: adapter?.info ?? device.adapterInfo });
  model.upload(weights);
  return model;
}

async function adapterFor(powerPreference) {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter({ powerPreference });
  if (adapter) return adapter;
  throw new LoadContractError('there is no WebGPU adapter', {
    hint: 'take a bundle for wasm32-simd, or serve the page over https',
  });
}

/** The least limits of an adapter that runs the shaders and holds the weights. */
function needsOf(manifest, { shaders }, content) {
  const most = (read) => Math.max(1, ...shaders.map(read));
  const largest = Math.max(4, ...partsOf(manifest, content).map((part) => whole(part.length)));
  return {
    maxStorageBuffersPerShaderStage: most(({ buffers }) => buffers),
    maxComputeWorkgroupStorageSize: most(({ shared }) => shared),
    maxComputeInvocationsPerWorkgroup: most(({ size: [x, y, z] }) => x * y * z),
    maxComputeWorkgroupSizeX: most(({ size }) => size[0]),
    maxComputeWorkgroupSizeY: most(({ size }) => size[1]),
    maxComputeWorkgroupSizeZ: most(({ size }) => size[2]),
    maxBufferSize: largest,
    maxStorageBufferBindingSize: largest,
  };
}

/** The bytes of each weight. */
function partsOf({ weights = [] }, content) {
  return weights.map(({ offset }, i) => content.subarray(offset, weights[i + 1]?.offset));
}

function refuse(needs, limits) {
  const lacking = Object.keys(needs).find((name) => needs[name] > limits[name]);
  if (!lacking) return;
  throw new LoadContractError(`the model needs a WebGPU adapter whose ${lacking} is ${needs[lacking]}, this one's is ${limits[lacking]}`, {
    hint: 'take a bundle for wasm32-simd', limit: lacking,
  });
}

async function pipelineOf(device, { name, code }) {
  try {
    const compute = { module: device.createShaderModule({ code }), entryPoint: name };
    return await device.createComputePipelineAsync({ layout: 'auto', compute });
  } catch (cause) {
    throw new LoadContractError(`WebGPU does not take the shader ${name}: ${cause.message}`, { cause });
  }
}

class GpuModel extends Model {
  constructor(manifest, exports, gpu) {
    super(manifest, exports, null, ['buffers', 'late', 'wanted']);
    Object.assign(this, gpu);
  }

  /** Whether the adapter is made of the processor. */
  get emulated() {
    return Boolean(this.info?.isFallbackAdapter);
  }

  context() {
    return new GpuContext(this);
  }

  async state(options) {
    const { GpuState } = await import('./gpu-state.js');
    return new GpuState(this, options);
  }

  async run(inputs, dims = {}) {
    this.own ??= this.context();
    this.own.bind(dims);
    return this.own.run(inputs);
  }

  close() {
    this.own?.close();
    this.held.forEach((buffer) => buffer.destroy());
  }

  buffer(bytes, usage = STORAGE | COPY_SRC | COPY_DST) {
    return this.device.createBuffer({ size: whole(bytes), usage });
  }

  write(buffer, values) {
    let given = values;
    if (values.byteLength % 4) {
      given = new Uint8Array(whole(values.byteLength));
      given.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    }
    this.device.queue.writeBuffer(buffer, 0, given);
  }

  upload(content) {
    this.held = partsOf(this.manifest, content).map((part) => {
      const buffer = this.buffer(part.length);
      this.write(buffer, part);
      return buffer;
    });
  }
}

export class GpuContext extends Context {
  place(dims) {
    const { model } = this, { table, device, calls, memory } = model;
    const sizes = this.numbers(calls.buffers, table.buffers);
    this.measure(dims);
    const inputs = model.inputs.map(({ dtype }, i) => this.counts[i] * arrayOf(dtype).BYTES_PER_ELEMENT);
    const most = Math.min(...SIZES.map((name) => device.limits[name])), largest = Math.max(...sizes, ...inputs);
    if (largest > most) {
      throw new InputError(`out of memory: these dims need a buffer of ${largest} bytes, the adapter has at most ${most}`, { hint: 'take smaller dims' });
    }
    const made = [inputs, sizes].map((all, i) => all.map((bytes, number) => this.room(INPUT + i, number, bytes)));
    this.buffers = [null, ...made, model.held];
    this.groups = new Map();
    const numbers = inputs.map((_, i) => INPUT << 24 | i);
    new Uint32Array(memory.buffer, this.vectors, numbers.length).set(numbers);
  }

  /** A buffer for an input, or for what a run computes. */
  room(kind, number, bytes) {
    return this.model.buffer(bytes);
  }

  async run(inputs) {
    const { model } = this, { device, calls } = model;
    this.ready();
    this.give(inputs);
    SCOPES.forEach((scope) => device.pushErrorScope(scope));
    const encoder = device.createCommandEncoder();
    this.pass = encoder.beginComputePass();
    model.running = this;
    const status = calls.run(this.at, this.vectors, 0);
    this.pass.end();
    const collected = status || this.collect(encoder);
    if (!status) device.queue.submit([encoder.finish()]);
    const errors = SCOPES.map(() => device.popErrorScope());
    this.check(status);
    const { reads, staging } = collected;
    const wanted = this.numbers(calls.wanted, model.table.checks.length);
    const bytes = await this.answer(staging, errors);
    const late = reads.slice(model.outputs.length).flatMap(({ view }) => Array.from(view(bytes), Number));
    const failed = model.table.checks.find(({ at }, i) => late[at] !== wanted[i]);
    if (failed) throw new ExecutionError(failed.message);
    return Object.fromEntries(reads.slice(0, model.outputs.length).map(({ name, shape, view }) => [name, { shape, data: view(bytes) }]));
  }

  put(value, i) {
    this.model.write(this.buffers[INPUT][i], value);
  }

  launch(number, at, x, y) {
    const { model } = this, { buffers, numbers } = model.table.shaders[number];
    const given = [...new Int32Array(model.memory.buffer, at, buffers + numbers)], key = [number, x, ...given].join();
    if (!this.groups.has(key)) this.groups.set(key, this.group(number, given.slice(0, buffers), [...given.slice(buffers), (x >>> 0) - 1]));
    let across = x >>> 0, again = 1;
    for (; across > MOST_BLOCKS; again *= 2) across = Math.ceil(across / 2);
    this.pass.setPipeline(model.pipelines[number]);
    this.pass.setBindGroup(0, this.groups.get(key).group);
    this.pass.dispatchWorkgroups(across, y >>> 0, again);
  }

  group(number, buffers, numbers) {
    const { model } = this, uniform = model.buffer(Math.ceil(numbers.length / 4) * 16, UNIFORM | COPY_DST);
    model.write(uniform, Int32Array.from(numbers));
    const entries = [...buffers.map((one) => this.resource(one)), { buffer: uniform }].map((resource, binding) => ({ binding, resource }));
    return { uniform, group: model.device.createBindGroup({ layout: model.pipelines[number].getBindGroupLayout(0), entries }) };
  }

  /** What a shader binds. */
  resource(number) {
    return { buffer: this.bufferOf(number) };
  }

  bufferOf(number) {
    return this.buffers[number >>> 24][number & 0xffffff];
  }

  /** Copies the outputs, and the numbers that checks need, to where they can be read. */
  collect(encoder) {
    const { model } = this, { calls, table } = model;
    let end = 0;
    const read = (number, dtype, length, rest) => {
      const Array = arrayOf(dtype), at = end, bytes = length * Array.BYTES_PER_ELEMENT;
      end += Math.ceil(bytes / 8) * 8;
      return { ...rest, from: this.bufferOf(number), at, bytes, view: (all) => new Array(all, at, length).slice() };
    };
    const late = new Int32Array(model.memory.buffer, calls.late(this.at), table.late.length);
    const reads = [
      ...model.outputs.map(({ name, dtype }, i) => {
        const shape = this.shape(i);
        return read(calls.output(this.at, i) >>> 0, dtype, shape.reduce((n, size) => n * size, 1), { name, shape });
      }),
      ...table.late.map(({ count, dtype }, i) => read(late[i] >>> 0, dtype, count)),
    ];
    const staging = model.buffer(end, READ | COPY_DST);
    for (const { from, at, bytes } of reads) if (bytes) encoder.copyBufferToBuffer(from, 0, staging, at, whole(bytes));
    return { reads, staging };
  }

  async answer(staging, errors) {
    try {
      const wrong = (await Promise.all(errors)).find(Boolean);
      if (wrong) throw wrong;
      await staging.mapAsync(READ);
      return staging.getMappedRange().slice(0);
    } catch (cause) {
      throw new ExecutionError(`WebGPU: ${cause.message}`, { cause, hint: 'take smaller dims' });
    } finally {
      staging.destroy();
    }
  }

  numbers(call, count) {
    return Array.from(new BigInt64Array(this.model.memory.buffer, call(this.at), count), Number);
  }

  unbind() {
    super.unbind();
    if (!this.buffers) return;
    this.groups.forEach(({ uniform }) => uniform.destroy());
    this.empty();
    this.buffers = null;
  }

  /** Gives the buffers back. */
  empty() {
    [...this.buffers[INPUT], ...this.buffers[SLOT]].forEach((buffer) => buffer.destroy());
  }
}
