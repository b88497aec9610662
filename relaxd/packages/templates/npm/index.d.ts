/* @name@, compiled by relaxd for @target@. */
@each cpu@
import type { Context as AnyContext, Data, LoadOptions as Options, Model as AnyModel } from 'relaxd';
@end@
@each gpu@
import type { Data, GpuContext as AnyContext, GpuModel as AnyModel, GpuOptions as Options } from 'relaxd';
@end@

/** Float16Array where the engine has it, else Uint16Array. */
export type Float16 = Data;

/** What `bind` and `run` take. */
export interface Dims {
@each dims@
  /** @about@ */
  readonly @dim@: number;
@end@
}

/** What `run` takes, each in C's order. */
export interface Inputs {
@each inputs@
  /** @about@ */
  readonly @tensor@: @type@;
@end@
}

export interface Tensor<T extends Data> {
  data: T;
  shape: number[];
}

/** What `run` gives; copies. */
export interface Outputs {
@each outputs@
  /** @about@ */
  @tensor@: Tensor<@type@>;
@end@
}

/** The values that a dim may have: multiples of one number, from min to max. */
export interface Range {
  readonly min: number;
  readonly max: number;
  readonly multiple: number;
}

export const ranges: { readonly [dim in keyof Dims]: Range };

/** The shape of each input at dims that `bind` takes. */
export const shapes: { readonly [input in keyof Inputs]: (dims: Dims) => number[] };

export interface Context extends Omit<AnyContext, 'bind' | 'run'> {
  /** Throws InputError. */
  bind(dims: Dims): void;
  /** Throws InputError and ExecutionError. */
@each cpu@
  run(inputs: Inputs): Outputs;
@end@
@each gpu@
  run(inputs: Inputs): Promise<Outputs>;
@end@
}

export interface Model extends Omit<AnyModel, 'context' | 'run'> {
  /** A context of its own: other dims, other memory, the same weights. */
  context(): Context;
  /** Throws InputError and ExecutionError. */
@each cpu@
  run(inputs: Inputs, dims: Dims): Outputs;
@end@
@each gpu@
  run(inputs: Inputs, dims: Dims): Promise<Outputs>;
@end@
}

/** The model, from the files of this package. */
export function open(options?: Options): Promise<Model>;
