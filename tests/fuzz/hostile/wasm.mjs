// node wasm.mjs: calls of WebAssembly libraries, one for each line of JSON that comes in, each in an instance of its
// own whose memory holds `byte` around what the call is given. Of a call that traps the answer says so.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const AROUND = 1024, HEADER = 24, ROOM = 1 << 24;
const modules = new Map();

async function moduleOf(library) {
  if (!modules.has(library)) modules.set(library, await WebAssembly.compile(readFileSync(library)));
  return modules.get(library);
}

class Call {
  constructor(exports, prefix, byte) {
    this.exports = exports;
    this.prefix = prefix;
    this.byte = byte;
  }

  call(name, ...values) {
    return this.exports[`${this.prefix}_${name}`](...values);
  }

  get view() {
    return new DataView(this.exports.memory.buffer);
  }

  bytes(at, length) {
    return new Uint8Array(this.exports.memory.buffer, at, length);
  }

  text(at) {
    const all = new Uint8Array(this.exports.memory.buffer);
    return Buffer.from(all.subarray(at, all.indexOf(0, at))).toString();
  }

  /** Memory with the byte before it, in it and behind it. */
  take(length) {
    const at = this.call('allocate', length + 2 * AROUND) >>> 0;
    if (!at) throw new Error('out of memory');
    this.bytes(at, length + 2 * AROUND).fill(this.byte);
    return at + AROUND;
  }

  hold(content) {
    const at = this.take(content.length);
    this.bytes(at, content.length).set(content);
    return at;
  }

  output(context, table, i) {
    const { view } = this, row = view.getUint32(table + HEADER, true) + 20 * i;
    const item = view.getInt32(row + 8, true), rank = view.getInt32(row + 12, true), at = this.call('shape', context, i);
    const shape = Array.from({ length: rank }, (_, axis) => Number(view.getBigInt64(at + 8 * axis, true)));
    const size = shape.reduce((n, extent) => n * extent, item);
    if (shape.some((extent) => extent < 0) || size > ROOM) return { shape, data: '' };
    return { shape, data: Buffer.from(this.bytes(this.call('output', context, i) >>> 0, size)).toString('base64') };
  }

  run({ dims, inputs, weights }) {
    // What the library takes later comes from here.
    this.call('release', this.take(ROOM) - AROUND);
    const table = this.call('interface'), context = this.take(this.call('size'));
    const failed = (status) => ({ status, why: this.text(this.call('failure', context)) });
    let status = this.call('open', context, weights ? this.hold(readFileSync(weights)) : 0, 0);
    if (status) return failed(status);
    const numbers = Buffer.alloc(8 * dims.length + 8);
    dims.forEach((value, i) => numbers.writeBigInt64LE(BigInt(value), 8 * i));
    const need = Number(this.call('bind', context, this.hold(numbers)));
    status = need < 0 ? -need : this.call('arena', context, this.take(need));
    if (status) return failed(status);
    const places = inputs.map((data) => this.hold(Buffer.from(data, 'base64'))), vector = this.take(4 * places.length + 4);
    places.forEach((at, i) => this.view.setUint32(vector + 4 * i, at, true));
    status = this.call('run', context, vector, 0);
    if (status) return failed(status);
    const count = this.view.getInt32(table + 8, true);
    return { outputs: Array.from({ length: count }, (_, i) => this.output(context, table, i)) };
  }
}

async function answer({ library, prefix, byte, ...given }) {
  const { exports } = await WebAssembly.instantiate(await moduleOf(library));
  try {
    return new Call(exports, prefix, byte).run(given);
  } catch (error) {
    if (error instanceof WebAssembly.RuntimeError) return { trap: error.message };
    return { status: 3, why: error.message };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
