// A model: one WebAssembly instance with its weights, and contexts that run it.
import { parseAxis } from './axes.js';
import { sha256 } from './digests.js';
import { BundleError, ExecutionError, InputError, LoadContractError } from './errors.js';

const SCHEMA = 1;
const WRONG_DIM = 1;
const Half = globalThis.Float16Array ?? Uint16Array;
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Half, bfloat16: Uint16Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  bool: Uint8Array, int4: Int8Array, int2: Int8Array,
};
export const arrayOf = (dtype) => ARRAYS[dtype] ?? Uint8Array;

/** Checks the files of a bundle against its manifest, and makes a model of them. */
export async function load(files, { threads } = {}) {
  const { manifest, library, module, weights } = await opened(files, 'cpu');
  if (!WebAssembly.Module.imports(module).some(({ kind }) => kind === 'memory')) {
    return new Model(manifest, await instance(module), weights);
  }
  // Pages without threads need not fetch what starts them.
  const { start } = await import('./threads.js');
  const team = await start(module, library, manifest.entry, threads);
  return new Model(manifest, team.exports, weights, [], team);
}

/** The manifest, the compiled library and the weights of a bundle for a device. */
export async function opened(files, device) {
  const manifest = manifestOf(fileOf(files, 'manifest.json'), device);
  const library = await checked(files, manifest, manifest.library);
  const weights = manifest.weights?.length ? await checked(files, manifest, manifest.weights_file) : null;
  return { manifest, library, weights, module: await compiled(library, manifest) };
}

/** The exports of a library that imports nothing else than what is given. */
export async function instance(module, given = {}) {
  const strange = WebAssembly.Module.imports(module).find((one) => !given[one.module]?.[one.name]);
  if (strange) throw new BundleError(`the library imports ${strange.module}.${strange.name}`);
  return (await WebAssembly.instantiate(module, given)).exports;
}

function fileOf(files, name) {
  const content = files instanceof Map ? files.get(name) : files[name];
  if (!content) throw new BundleError(`the bundle lacks ${name}`);
  return ArrayBuffer.isView(content) || content instanceof ArrayBuffer ? bytesOf(content) : content;
}

const bytesOf = (content) => ArrayBuffer.isView(content)
  ? new Uint8Array(content.buffer, content.byteOffset, content.byteLength)
  : new Uint8Array(content);

function manifestOf(bytes, device) {
  let manifest;
  try {
    manifest = JSON.parse(new TextDecoder().decode(bytes));
  } catch (cause) {
    throw new BundleError('manifest.json is not JSON', { cause });
  }
  if (manifest.schema_version !== SCHEMA) {
    throw new BundleError(`the manifest has schema version ${manifest.schema_version}`, {
      hint: `this package reads ${SCHEMA}`,
    });
  }
  if (manifest.load.arch !== 'wasm32') {
    throw new LoadContractError(`the bundle is for ${manifest.load.arch}`, {
      hint: 'compile with --target wasm32-simd',
    });
  }
  if ((manifest.load.device ?? 'cpu') !== device) {
    throw new LoadContractError(`the bundle's kernels are for ${manifest.load.device ?? 'cpu'}`, {
      hint: device === 'cpu' ? 'use loadGpu' : 'use load',
    });
  }
  return manifest;
}

async function checked(files, manifest, name) {
  const bytes = fileOf(files, name), entry = manifest.files[name];
  if (!entry || entry.size !== bytes.length || entry.sha256 !== await sha256(bytes)) {
    throw new BundleError(`${name} does not have the sha256 of the manifest`, { hint: 'fetch it again' });
  }
  return bytes;
}

async function compiled(library, manifest) {
  try {
    return await WebAssembly.compile(library);
  } catch (cause) {
    throw new LoadContractError(`this engine does not take ${manifest.library}: ${cause.message}`, {
      cause, hint: "compile with --target wasm32, or allow 'wasm-unsafe-eval' in the page's script-src",
    });
  }
}

export class Model {
  constructor(manifest, exports, weights, more = [], team = { threads: 1 }) {
    const call = (name) => exports[`${manifest.entry}_${name}`];
    Object.assign(this, { manifest, team, inputs: manifest.inputs, outputs: manifest.outputs });
    this.calls = Object.fromEntries(
      ['size', 'open', 'bind', 'arena', 'run', 'shape', 'output', 'failure', 'interface', 'close', 'allocate', 'release', ...more]
        .map((name) => [name, call(name)]),
    );
    this.memory = exports.memory;
    this.axes = this.inputs.map((spec) => spec.shape.map(parseAxis));
    this.bound = boundDims(this);
    this.weights = 0;
    if (weights) {
      this.weights = this.take(weights.length);
      new Uint8Array(this.memory.buffer).set(weights, this.weights);
    }
  }

  /** The declared dims: name to min, max, multiple. */
  get dims() {
    return this.manifest.dims;
  }

  /** How many threads compute a run. */
  get threads() {
    return this.team.threads;
  }

  /** Why it is one, of a library that takes several. */
  get lacking() {
    return this.team.lacking;
  }

  /** A context of its own: other dims, other memory, the same weights. */
  context() {
    return new Context(this);
  }

  /** The in-place KV cache of a language model. */
  async state(options) {
    const { State } = await import('./state.js');
    return new State(this, options);
  }

  /** One inference in the model's own context. */
  run(inputs, dims = {}) {
    this.own ??= this.context();
    this.own.bind(dims);
    return this.own.run(inputs);
  }

  /** Ends the threads; a later run has the caller's alone. */
  close() {
    this.team.close?.();
  }

  take(bytes) {
    const at = this.calls.allocate(Math.max(bytes, 1)) >>> 0;
    if (!at) throw new ExecutionError(`out of memory: cannot allocate ${bytes} bytes`, { hint: 'take smaller dims' });
    return at;
  }

  text(at) {
    const bytes = new Uint8Array(this.memory.buffer);
    return new TextDecoder().decode(bytes.slice(at, bytes.indexOf(0, at)));
  }
}

/** The dims that `bind` takes, in its order, which the library's own table states. */
function boundDims(model) {
  const view = new DataView(model.memory.buffer), table = model.calls.interface();
  const count = view.getInt32(table + 12, true), rows = view.getUint32(table + 28, true);
  return Array.from({ length: count }, (_, i) => model.text(view.getUint32(rows + 32 * i, true)));
}

export class Context {
  constructor(model) {
    this.model = model;
    this.held = [];
    this.at = model.take(model.calls.size());
    this.vectors = model.take(8 * Math.max(model.bound.length, model.inputs.length));
    this.check(model.calls.open(this.at, model.weights, 0));
  }

  /** Sets the dims; those of one value alone may be left out. Does nothing where they are the same. */
  bind(dims) {
    const { model } = this, values = model.bound.map((name) => valueOf(model, name, dims));
    const key = values.join();
    const strange = Object.keys(dims).find((name) => !model.bound.includes(name));
    if (strange) throw new InputError(`the model has no dim ${strange}`, { hint: `its dims: ${model.bound.join(', ')}` });
    if (key === this.key) return;
    this.unbind();
    new BigInt64Array(model.memory.buffer, this.vectors, values.length).set(values.map(BigInt));
    const need = Number(model.calls.bind(this.at, this.vectors));
    if (need < 0) this.check(-need);
    this.check(model.calls.arena(this.at, need && this.hold(need)));
    this.place(Object.fromEntries(values.map((value, i) => [model.bound[i], value])));
    this.key = key;
  }

  place(dims) {
    const { model } = this;
    this.measure(dims);
    const places = model.inputs.map(({ dtype }, i) => this.hold(this.counts[i] * arrayOf(dtype).BYTES_PER_ELEMENT));
    new Uint32Array(model.memory.buffer, this.vectors, places.length).set(places);
    this.places = places;
    this.shapes = model.outputs.map((_, i) => this.shape(i));
    this.buffer = null;
  }

  /** How many values each input has. */
  measure(dims) {
    this.counts = this.model.axes.map((axes) => axes.reduce((n, axis) => n * axis.size(dims), 1));
  }

  ready() {
    if (this.key === undefined) throw new InputError('the context has no dims', { hint: 'call bind first' });
  }

  /** One inference: typed arrays by input name to shapes and copies of the data by output name. */
  run(inputs) {
    const { model } = this;
    this.ready();
    if (this.buffer !== model.memory.buffer) this.look();
    this.give(inputs);
    this.check(model.calls.run(this.at, this.vectors, 0));
    const results = {};
    for (let i = 0; i < model.outputs.length; ++i) results[model.outputs[i].name] = this.result(i);
    return results;
  }

  /** Checks the inputs, and puts each where the run reads it. */
  give(inputs) {
    const { model } = this;
    let given = 0;
    for (let i = 0; i < this.counts.length; ++i) {
      const spec = model.inputs[i], Array = arrayOf(spec.dtype);
      let value = inputs[spec.name];
      if (value === undefined && spec.default !== undefined) value = new Array(this.counts[i]).fill(numberFor(spec));
      else {
        checkInput(spec, value, Array, this.counts[i]);
        given += 1;
      }
      this.put(value, i);
    }
    if (given < Object.keys(inputs).length) throw strangeInput(model, inputs);
  }

  put(value, i) {
    this.views[i].set(value);
  }

  /** Views of the inputs; the engine takes the old ones away when the memory grows. */
  look() {
    this.buffer = this.model.memory.buffer;
    this.views = this.model.inputs.map(({ dtype }, i) => new (arrayOf(dtype))(this.buffer, this.places[i], this.counts[i]));
  }

  result(i) {
    const shape = this.shapes[i].includes(-1) ? this.shape(i) : this.shapes[i].slice();
    const length = shape.reduce((n, size) => n * size, 1);
    const Array = arrayOf(this.model.outputs[i].dtype), at = this.model.calls.output(this.at, i) >>> 0;
    return { shape, data: new Array(this.model.memory.buffer, at, length).slice() };
  }

  shape(i) {
    const at = this.model.calls.shape(this.at, i) >>> 0, rank = this.model.outputs[i].shape.length;
    return rank ? Array.from(new BigInt64Array(this.model.memory.buffer, at, rank), Number) : [];
  }

  check(status) {
    if (!status) return;
    const why = this.model.text(this.model.calls.failure(this.at) >>> 0) || `status ${status}`;
    throw new (status === WRONG_DIM ? InputError : ExecutionError)(why, { status });
  }

  hold(bytes) {
    this.held.push(this.model.take(bytes));
    return this.held.at(-1);
  }

  unbind() {
    this.key = undefined;
    this.held.splice(0).forEach((at) => this.model.calls.release(at));
  }

  /** Gives the context's memory back; nothing may use the context afterwards. */
  close() {
    this.unbind();
    this.model.calls.close(this.at);
    [this.at, this.vectors].forEach((at) => this.model.calls.release(at));
  }
}

function valueOf(model, name, dims) {
  const { min, max } = model.dims[name] ?? {};
  const value = dims[name] ?? (min === max ? min : undefined);
  if (Number.isSafeInteger(value)) return value;
  throw new InputError(`dim ${name} is ${value}`, { hint: 'every dim takes a whole number' });
}

function checkInput(spec, value, Array, length) {
  const kind = Object.prototype.toString.call(value).slice(8, -1), wanted = Array.name;
  if (kind !== wanted) {
    throw new InputError(`input ${spec.name} is ${value === undefined ? 'missing' : `a ${kind}`}`, {
      hint: `${spec.dtype} takes a ${wanted}; nothing is converted`,
    });
  }
  if (value.length !== length) {
    throw new InputError(`input ${spec.name} has ${value.length} values, it must have ${length}`, {
      hint: `its shape is [${spec.shape.join(', ')}] at these dims`,
    });
  }
}

const numberFor = ({ dtype, default: value }) => (dtype.endsWith('int64') ? BigInt(value) : value);

function strangeInput(model, inputs) {
  const names = model.inputs.map(({ name }) => name);
  const strange = Object.keys(inputs).find((name) => !names.includes(name));
  return new InputError(`the model has no input ${strange}`, { hint: `its inputs: ${names.join(', ')}` });
}
