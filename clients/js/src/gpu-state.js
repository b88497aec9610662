// Caches of a language model in buffers of a GPU, where steps write their rows.
import { InputError } from './errors.js';
import { GpuContext, INPUT } from './gpu.js';
import { State, beside } from './state.js';

/** A context that finds the caches in a state's buffers, and keeps its own from step to step where they are large enough. */
class Step extends beside(GpuContext) {
  kept = new Map();

  bind(dims, first) {
    // The shaders' arguments begin at the first entry.
    if (first !== this.first) this.unbind();
    this.first = first;
    super.bind(dims);
  }

  room(kind, number, bytes) {
    const cache = kind === INPUT && this.cacheOf(number);
    if (cache) return cache.buffer;
    const key = [kind, number].join(), had = this.kept.get(key);
    if (had?.size >= bytes) return had;
    // A run that still reads it has been submitted.
    had?.destroy();
    this.kept.set(key, super.room(kind, number, bytes));
    return this.kept.get(key);
  }

  resource(number) {
    const cache = number >>> 24 === INPUT && this.cacheOf(number & 0xffffff);
    return cache ? { buffer: cache.buffer, offset: this.first * cache.stride } : super.resource(number);
  }

  cacheOf(number) {
    return this.state.buffers.get(this.model.inputs[number].name);
  }

  // The next step finds them.
  empty() {}

  close() {
    super.close();
    this.kept.forEach((buffer) => buffer.destroy());
  }
}

/** As State; steps are promises, and one may begin before another has ended. */
export class GpuState extends State {
  async step(given, options = {}) {
    const { inputs, known, first, before, after } = this.prepared(given, options);
    this.reach(first);
    this.steps.bind(known, first);
    const running = this.steps.run(inputs);
    this.fill(first, after);
    try {
      return await running;
    } catch (error) {
      // What has been put behind these tokens goes with them.
      this.fill(first, before.map((length, i) => Math.min(length, this.filled[first + i])));
      throw error;
    }
  }

  /** Refuses entries that begin where shaders cannot. */
  reach(first) {
    const each = this.model.device.limits.minStorageBufferOffsetAlignment;
    if ([...this.buffers.values()].every(({ stride }) => first * stride % each === 0)) return;
    throw new InputError(`this adapter takes no step that begins with entry ${first}: its caches do not begin at a multiple of ${each} bytes`, {
      hint: 'step from entry 0 on, or take another capacity, such as a multiple of 64',
    });
  }

  stepping() {
    return new Step(this);
  }

  zeros(bytes) {
    const { maxBufferSize, maxStorageBufferBindingSize } = this.model.device.limits, most = Math.min(maxBufferSize, maxStorageBufferBindingSize);
    if (bytes > most) {
      throw new InputError(`a cache takes ${bytes} bytes, a buffer of the adapter at most ${most}`, { hint: 'take a smaller capacity, or fewer entries' });
    }
    return { at: 0, buffer: this.model.buffer(bytes) };
  }

  release({ buffer }) {
    buffer.destroy();
  }

  clear(spans) {
    this.submit((encoder) => spans.forEach(({ cache, begin, end }) => encoder.clearBuffer(cache.buffer, begin, end - begin)));
  }

  move(spans, entries) {
    const sizes = spans.map(({ begin, end }) => end - begin), between = this.model.buffer(sizes.reduce((sum, size) => sum + size));
    // WebGPU copies between two buffers alone.
    this.submit((encoder) => {
      let at = 0;
      spans.forEach(({ cache, begin }, i) => {
        encoder.copyBufferToBuffer(cache.buffer, begin, between, at, sizes[i]);
        encoder.copyBufferToBuffer(between, at, cache.buffer, begin + entries * cache.stride, sizes[i]);
        at += sizes[i];
      });
    });
    between.destroy();
  }

  submit(write) {
    const { device } = this.model, encoder = device.createCommandEncoder();
    write(encoder);
    device.queue.submit([encoder.finish()]);
  }
}
