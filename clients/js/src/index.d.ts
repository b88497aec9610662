export type Bytes = ArrayBuffer | ArrayBufferView;
export type DType =
  | 'float16' | 'bfloat16' | 'float32' | 'float64' | 'bool'
  | 'int8' | 'int16' | 'int32' | 'int64' | 'uint8' | 'uint16' | 'uint32' | 'uint64'
  | 'float8_e4m3fn' | 'float8_e4m3fnuz' | 'float8_e5m2' | 'float8_e5m2fnuz' | 'float8_e8m0fnu' | 'float4_e2m1fn'
  | 'int4' | 'uint4' | 'int2' | 'uint2';
/** float32: Float32Array, int64: BigInt64Array, and so on; bool, and types of 8 bits and fewer, one a byte. */
export type Data =
  | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

/** `shape` has a number for a fixed size, else an expression of dims. */
export interface TensorSpec {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly (number | string)[];
  readonly default?: number;
}

/** The values that a dim may have; without `max`, any from `min`. */
export interface Dim {
  readonly min: number;
  readonly max?: number;
  readonly multiple?: number;
  readonly opt?: number;
}

export type Dims = Readonly<Record<string, number>>;
export type Inputs = Readonly<Record<string, Data>>;
export interface Tensor {
  shape: number[];
  data: Data;
}
export type Outputs = Record<string, Tensor>;

export interface Context {
  /** Sets the dims; those that have one value alone may be left out. Throws InputError. */
  bind(dims: Dims): void;
  /** One inference. What it returns is a copy. Throws InputError and ExecutionError. */
  run(inputs: Inputs): Outputs;
  /** Gives the context's memory back. */
  close(): void;
}

export interface StateOptions {
  /** How many sequences; 1 by default. */
  entries?: number;
  /** Tokens that each has room for; by default the most that the model takes. */
  capacity?: number;
}

export interface StepOptions {
  /** The first of the entries that the step is for, 0 by default, and how many, by default all from there. */
  first?: number;
  entries?: number;
  /** Dims of other inputs. */
  dims?: Dims;
}

/** Caches that stay where the model computes; a step gives new tokens alone. */
export interface State {
  readonly capacity: number;
  /** How many tokens each entry holds. */
  readonly lengths: readonly number[];
  /** Whether entries of different lengths may take a step together. */
  readonly ragged: boolean;
  /** The inputs that a step has to be given. */
  readonly free: readonly TensorSpec[];
  /**
   * The outputs for new tokens of the entries: the tokens [entries, tokens], or inputs by name. Throws CapacityError where
   * they do not fit, and InputError; then nothing changes.
   */
  step(tokens: Data | Inputs, options?: StepOptions): Outputs;
  /** Forgets an entry's tokens from `length` on. */
  truncate(entry: number, length: number): void;
  /** Empties an entry, or all of them. */
  reset(entry?: number): void;
  /** Makes an entry hold the first `length` tokens of another, by default all. */
  copy(source: number, target: number, length?: number): void;
  /** Gives the memory of the caches back. */
  close(): void;
}

export interface Model {
  readonly manifest: Readonly<Record<string, unknown>>;
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  readonly dims: Readonly<Record<string, Dim>>;
  /** How many threads compute a run: 1 unless the bundle is for wasm32-threads. */
  readonly threads: number;
  /** Why it is one thread alone, where the bundle takes several and more than one was wanted. */
  readonly lacking?: string;
  /** A context of its own: other dims, other memory, the same weights. */
  context(): Context;
  /** Caches of a language model that was compiled with state=lifted. Rejects with InputError. */
  state(options?: StateOptions): Promise<State>;
  /** One inference in the model's own context. Throws InputError and ExecutionError. */
  run(inputs: Inputs, dims?: Dims): Outputs;
  /** Ends the model's threads; a later run has the caller's alone. */
  close(): void;
}

/** A context whose tensors lie in the memory of a GPU. */
export interface GpuContext extends Omit<Context, 'run'> {
  /** One inference; others may begin before it ends. Rejects with InputError and ExecutionError. */
  run(inputs: Inputs): Promise<Outputs>;
}

/** Caches in the memory of a GPU. */
export interface GpuState extends Omit<State, 'step'> {
  /** As that of State; a step may begin before another has ended. One that rejects takes back what was put behind it. */
  step(tokens: Data | Inputs, options?: StepOptions): Promise<Outputs>;
}

/** A model whose kernels run on WebGPU. */
export interface GpuModel extends Omit<Model, 'context' | 'run' | 'state' | 'threads' | 'lacking'> {
  /** A GPUDevice. */
  readonly device: object;
  /** What the browser says of the adapter. */
  readonly info?: { readonly vendor: string; readonly architecture: string; readonly description: string };
  /** Whether the adapter is made of the processor. */
  readonly emulated: boolean;
  context(): GpuContext;
  /** Caches of a language model that was compiled with state=lifted. Rejects with InputError. */
  state(options?: StateOptions): Promise<GpuState>;
  /** As that of a context; runs of other dims may begin before it ends. */
  run(inputs: Inputs, dims?: Dims): Promise<Outputs>;
  /** Gives the memory back that the model's own context and its weights have on the device. */
  close(): void;
}

/** The files of a bundle by name: manifest.json, the library, and weights.bin where the model has weights. */
export type Files = Readonly<Record<string, Bytes>> | ReadonlyMap<string, Bytes>;

export interface LoadOptions {
  /** With the caller's, 1 to 32; by default one for each processor, 4 at most. For bundles of wasm32-threads. */
  threads?: number;
}

/** Checks the files' sha256 and makes a model of them. Throws BundleError, LoadContractError and InputError. */
export function load(files: Files, options?: LoadOptions): Promise<Model>;

export interface GpuOptions {
  /** The GPUDevice to take; else one is made, with the limits that the model needs. */
  device?: object;
  powerPreference?: 'low-power' | 'high-performance';
}

/**
 * As `load`, for a bundle whose target is webgpu. Throws LoadContractError where there is no adapter, or one whose limits
 * are too small.
 */
export function loadGpu(files: Files, options?: GpuOptions): Promise<GpuModel>;

export interface PullOptions {
  /** Sent as a bearer token. */
  token?: string;
  /** Which bundle of an index; by default the fastest that this engine runs. */
  target?: string;
  /** Files beside those that running needs, such as `tokenizer.json`. */
  also?: string[];
  signal?: AbortSignal;
  /** Bytes that have come, and bytes in all. */
  onProgress?: (done: number, total: number) => void;
  /**
   * The name of a cache of the browser's Cache API that keeps files by their digests, and gives them to later pulls, checked
   * again. Without it, and in engines that have none, everything is fetched. `caches.delete(name)` removes it.
   */
  cache?: string;
  fetch?: typeof globalThis.fetch;
}

/**
 * Pulls a bundle from a registry, by `sha256:...` or `name@sha256:...`, and checks every byte.
 * Throws PullError, ServerError and ServerUnreachable.
 */
export function pull(server: string | URL, reference: string, options?: PullOptions): Promise<Record<string, Uint8Array>>;

/** The registry's targets that this engine can run, the fastest first. */
export function targets(): string[];

export class RelaxdError extends Error {
  readonly code: string;
  /** What to change. */
  readonly hint?: string;
  readonly details: Readonly<Record<string, unknown>>;
}
export class BundleError extends RelaxdError {}
export class LoadContractError extends RelaxdError {}
export class InputError extends RelaxdError {}
export class CapacityError extends RelaxdError {}
export class ExecutionError extends RelaxdError {}
export class PullError extends RelaxdError {}
export class ServerError extends RelaxdError {
  readonly status: number;
}
export class ServerUnreachable extends RelaxdError {}
