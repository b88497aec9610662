// Caches of a language model: a step gives new tokens alone, and the library writes their rows into buffers kept here.
import { dimOf, parseAxis } from './axes.js';
import { CapacityError, InputError } from './errors.js';
import { Context, arrayOf } from './model.js';

const range = (count, each) => Array.from({ length: count }, (_, i) => each(i));

/** What inputs state of the caches, by the lengths of entries before and after a step of so many rows, and the greatest after. */
const PARTS = {
  mask: (before, after, rows, most) => after.flatMap((length) => range(most, (i) => Number(i < length))),
  length: (before, after) => after,
  last: (before, after) => after.map((length) => length - 1),
  total: (before, after, rows, most) => [most],
  positions: (before, after, rows) => before.flatMap((length) => range(rows, (i) => length + i)),
  past: (before, after, rows, most) => range(most - rows, () => 0),
};

/** Contexts that take no memory for caches, and are given none: these lie in a state's buffers. */
export const beside = (Base) => class extends Base {
  constructor(state) {
    super(state.model);
    this.state = state;
  }

  measure(dims) {
    super.measure(dims);
    this.model.inputs.forEach(({ name }, i) => this.state.buffers.has(name) && (this.counts[i] = 0));
  }

  give(inputs) {
    const caches = [...this.state.buffers.keys()].map((name) => [name, new (arrayOf(this.state.specs.get(name).dtype))(0)]);
    super.give({ ...inputs, ...Object.fromEntries(caches) });
  }
};

/** A context that finds the caches in memory, and keeps its own from step to step where that is large enough. */
class Step extends beside(Context) {
  sizes = [];

  bind(dims, first) {
    this.first = first;
    super.bind(dims);
    this.point();
  }

  hold(bytes) {
    const i = this.next++;
    if (!(this.sizes[i] >= bytes)) {
      if (this.held[i]) this.model.calls.release(this.held[i]);
      this.held[i] = this.model.take(bytes);
      this.sizes[i] = bytes;
    }
    return this.held[i];
  }

  place(dims) {
    super.place(dims);
    this.own = this.places.slice();
  }

  /** Points the caches' inputs at the first entry of a step. */
  point() {
    this.model.inputs.forEach(({ name }, i) => {
      const buffer = this.state.buffers.get(name);
      this.places[i] = buffer ? buffer.at + this.first * buffer.stride : this.own[i];
    });
    new Uint32Array(this.model.memory.buffer, this.vectors, this.places.length).set(this.places);
    this.buffer = null;
  }

  unbind() {
    this.key = undefined;
    this.next = 0;
  }

  close() {
    this.held.splice(0).forEach((at) => this.model.calls.release(at));
    super.close();
  }
}

/** The caches of some sequences, each filled to a length of its own. `Model.state` makes one. */
export class State {
  constructor(model, { entries = 1, capacity } = {}) {
    const described = model.manifest.state;
    if (!described) throw new InputError(`${model.manifest.name} has no state`, { hint: 'compile it with the option state=lifted' });
    Object.assign(this, { model, described, entries });
    this.specs = new Map(model.inputs.map((spec) => [spec.name, spec]));
    this.capacity = this.admitted(capacity ?? model.dims[described.capacity].max);
    this.filled = new Array(entries).fill(0);
    const names = described.caches.map(({ input }) => input);
    this.buffers = new Map(names.map((name) => [name, this.buffer(this.specs.get(name))]));
    this.free = model.inputs.filter(({ name }) => !this.buffers.has(name) && !(name in described.parts));
    this.steps = this.stepping();
  }

  /** How many tokens each entry holds. */
  get lengths() {
    return this.filled.slice();
  }

  /** Whether entries of different lengths may take a step together. */
  get ragged() {
    return this.described.ragged;
  }

  /** The model's outputs for new tokens of the entries from `first` on. */
  step(given, options = {}) {
    const { inputs, known, first, after } = this.prepared(given, options);
    this.steps.bind(known, first);
    const outputs = this.steps.run(inputs);
    this.fill(first, after);
    return outputs;
  }

  /** All inputs of a step, its dims, and the lengths of its entries after it. */
  prepared(given, { first = 0, entries = this.entries - first, dims = {} }) {
    const inputs = this.named(given), sizes = this.sizes(inputs, entries, dims), rows = sizes[dimOf(this.described.rows)] ?? 1;
    const before = this.filled.slice(first, first + entries), after = before.map((length) => length + rows);
    if (!(entries >= 1 && before.length === entries)) throw new InputError(`the state has ${this.entries} entries`);
    const most = Math.max(...after);
    if (most > this.capacity) throw new CapacityError(most, this.capacity);
    if (!this.ragged && most !== Math.min(...after)) {
      throw new InputError('entries of different lengths cannot take a step together in this model', { hint: 'give one at a time' });
    }
    for (const [name, part] of Object.entries(this.described.parts)) {
      const spec = this.specs.get(name), values = PARTS[part](before, after, rows, most), Array = arrayOf(spec.dtype);
      inputs[name] = Array.from(values, spec.dtype.endsWith('int64') ? BigInt : Number);
      if (part === 'mask') this.solve(spec.shape, [entries, most], sizes);
      if (part === 'past') this.solve(spec.shape, [most - rows], sizes);
    }
    sizes[this.described.past] = most - rows;
    const known = Object.entries(sizes).filter(([name]) => this.model.bound.includes(name));
    return { inputs, known: Object.fromEntries(known), first, before, after };
  }

  fill(first, lengths) {
    lengths.forEach((length, i) => (this.filled[first + i] = length));
  }

  /** Forgets an entry's tokens from `length` on. */
  truncate(entry, length) {
    const have = this.filled[entry];
    if (!(length >= 0 && length <= have)) throw new InputError(`entry ${entry} has ${have} tokens: it cannot be truncated to ${length}`);
    // Steps of other entries read these rows and weigh them by 0, which a NaN would outlive.
    if (length < have) this.clear(this.spans(entry, length, have));
    this.filled[entry] = length;
  }

  /** Empties an entry, or all of them. */
  reset(entry) {
    for (const one of entry === undefined ? this.filled.keys() : [entry]) this.truncate(one, 0);
  }

  /** Makes an entry hold the first `length` tokens of another, by default all. */
  copy(source, target, length = this.filled[source]) {
    if (!(length >= 0 && length <= this.filled[source] && target in this.filled)) {
      throw new InputError(`entry ${source} has ${this.filled[source]} tokens, ${length} cannot be copied to entry ${target}`);
    }
    if (source === target) return this.truncate(target, length);
    this.reset(target);
    if (length > 0) this.move(this.spans(source, 0, length), target - source);
    this.filled[target] = length;
  }

  /** Gives the memory of the caches back; nothing may use the state afterwards. */
  close() {
    this.steps.close();
    this.buffers.forEach((buffer) => this.release(buffer));
  }

  /** Where an entry's rows lie, for each head of each cache. */
  spans(entry, from, to) {
    return [...this.buffers.values()].flatMap((cache) => range(cache.heads, (head) => {
      const start = cache.at + entry * cache.stride + head * (cache.stride / cache.heads);
      return { cache, begin: start + from * cache.row, end: start + to * cache.row };
    }));
  }

  admitted(capacity) {
    const { capacity: name } = this.described, { min, max = Infinity, multiple = 1 } = this.model.dims[name];
    if (Number.isSafeInteger(capacity) && capacity >= min && capacity <= max && capacity % multiple === 0) return capacity;
    throw new InputError(`the capacity is ${capacity}`, { hint: `give one from ${min} to ${max}, a multiple of ${multiple}` });
  }

  /** A cache [entries, heads, capacity, size] of zeros. */
  buffer({ dtype, shape }) {
    const dims = { [this.described.capacity]: this.capacity };
    const [heads, capacity, size] = shape.slice(1).map((axis) => parseAxis(axis).size(dims));
    const row = size * arrayOf(dtype).BYTES_PER_ELEMENT, stride = heads * capacity * row;
    return { ...this.zeros(this.entries * stride), stride, heads, row };
  }

  // What follows is other for caches in the memory of a GPU.

  stepping() {
    return new Step(this);
  }

  zeros(bytes) {
    const at = this.model.take(bytes);
    new Uint8Array(this.model.memory.buffer, at, bytes).fill(0);
    return { at };
  }

  release({ at }) {
    this.model.calls.release(at);
  }

  clear(spans) {
    const bytes = new Uint8Array(this.model.memory.buffer);
    for (const { begin, end } of spans) bytes.fill(0, begin, end);
  }

  /** Copies rows to an entry so many behind theirs. */
  move(spans, entries) {
    const bytes = new Uint8Array(this.model.memory.buffer);
    for (const { cache, begin, end } of spans) bytes.copyWithin(begin + entries * cache.stride, begin, end);
  }

  /** The inputs of a step by name: a typed array is the tokens of a model that takes no more. */
  named(given) {
    if (!ArrayBuffer.isView(given)) return { ...given };
    if (this.free.length === 1) return { [this.free[0].name]: given };
    throw new InputError('the model takes more than tokens', { hint: `give ${this.free.map(({ name }) => name).join(', ')} by name` });
  }

  /** The dims of a step: those of its entries and of the rows of its inputs. */
  sizes(inputs, entries, dims) {
    const { caches, capacity, rows } = this.described, sizes = { ...dims, [capacity]: this.capacity };
    this.solve(this.specs.get(caches[0].input).shape, [entries], sizes);
    for (const { name, shape } of this.free) {
      const place = shape.indexOf(rows), others = shape.filter((_, i) => i !== place);
      if (place < 0 || !inputs[name]) continue;
      sizes[dimOf(rows)] = inputs[name].length / others.reduce((n, axis) => n * parseAxis(axis).size(sizes), 1);
      break;
    }
    return sizes;
  }

  /** Takes the dims that axes of these extents are. */
  solve(shape, extents, sizes) {
    extents.forEach((extent, i) => {
      const name = dimOf(shape[i]);
      if (name !== undefined && name in this.model.dims) sizes[name] = extent;
    });
  }
}
