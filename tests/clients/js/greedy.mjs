// Continues prompts greedily: `node greedy.mjs PACKAGE BUNDLE`; prints the tokens of each, and their logits.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const [, , source, bundle] = process.argv;
const { load } = await import(join(source, 'index.js'));
const names = ['manifest.json', 'model.wasm', 'weights.bin'];
const model = await load(Object.fromEntries(names.map((name) => [name, readFileSync(join(bundle, name))])));
const { prompts, tokens, capacity } = JSON.parse(readFileSync(join(bundle, 'prompts.json')));
const state = await model.state({ capacity });

function best({ shape, data }) {
  const words = shape.at(-1), last = data.subarray(data.length - words);
  const token = last.reduce((most, value, i) => (value > last[most] ? i : most), 0);
  return [token, last[token]];
}

const found = prompts.map((prompt) => {
  state.reset();
  const chosen = [best(state.step(BigInt64Array.from(prompt, BigInt)).logits)];
  while (chosen.length < tokens) chosen.push(best(state.step(BigInt64Array.of(BigInt(chosen.at(-1)[0]))).logits));
  return chosen;
});
console.log(JSON.stringify(found));
