import { open as openMlp, ranges } from 'relaxd-mlp';
import { open as openOdd, ranges as oddRanges } from 'relaxd-odd';

function print(name, { shape, data }) {
  const values = Array.from(data, (value) => ` ${Number(value)}`).join('');
  console.log(`${[name, ...shape].join(' ')}:${values}`);
}

function fails(call) {
  try {
    call();
  } catch (error) {
    console.log(error.code, error.message);
  }
}

const model = await openMlp();
const first = model.context(), second = model.context();
second.bind({ n: 3 });
const x = Float32Array.from({ length: ranges.n.max * 32 }, (_, i) => (i % 32) / 32);
for (const n of [1, 2, 8]) {
  first.bind({ n });
  print('y', first.run({ x: x.subarray(0, n * 32) }).y);
}
print('y', second.run({ x: x.subarray(0, 96) }).y);
fails(() => first.bind({ n: 9 }));
first.bind({ n: 2 });
fails(() => first.run({ x }));

const odd = await openOdd();
const values = Float32Array.of(1, 0, 2, 0, 0, 3, 0, 0);
for (const length of [4, 0]) {
  const dims = { N: 1, n: 2, 'seq-len': length };
  const inputs = { class: values.subarray(0, 2 * length), 'a.b': BigInt64Array.of(5n, 6n), 'a/b': Uint8Array.of(1, 0) };
  const outputs = odd.run(inputs, dims);
  print('return', outputs.return);
  if (length !== 0) print('N', outputs.N);
  print('where', outputs.where);
}
fails(() => odd.run({}, { N: 1, n: 2, 'seq-len': oddRanges['seq-len'].multiple + 2 }));
