import { open, ranges, shapes } from 'relaxd-mlp';

const model = await open();
const most: number = ranges.n.max;
const shape: number[] = shapes.x({ n: most });
const y: Float32Array = model.run({ x: new Float32Array(32) }, { n: 1 }).y.data;
// @ts-expect-error: the input has another type
model.run({ x: new Float64Array(32) }, { n: 1 });
// @ts-expect-error: the model has no such dim
model.run({ x: new Float32Array(32) }, { m: 1 });
console.log(shape, y);
