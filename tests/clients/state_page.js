// Plays a list of calls of a state on a GPU; what each gave is the page's text. Steps in a row begin before others have ended.
import { loadGpu } from './relaxd/index.js';

const names = ['manifest.json', 'model.wasm', 'weights.bin'];
const files = await Promise.all(names.map(async (name) => [name, await (await fetch(`bundle/${name}`)).arrayBuffer()]));
const model = await loadGpu(Object.fromEntries(files));
const { options, calls } = await (await fetch('calls.json')).json();

async function played() {
  const state = await model.state(options);
  const found = calls.map(async ([name, ...given]) => {
    if (name === 'step') given[0] = Object.fromEntries(Object.entries(given[0]).map(([key, ids]) => [key, BigInt64Array.from(ids, BigInt)]));
    try {
      const running = state[name](...given), { lengths } = state, gave = await running;
      return { gave: gave && { shape: gave.logits.shape, data: Array.from(gave.logits.data) }, lengths };
    } catch ({ code, message }) {
      return { code, message };
    }
  });
  const all = await Promise.all(found);
  state.close();
  return all;
}

try {
  document.body.textContent = JSON.stringify(await played());
} catch ({ code, message }) {
  document.body.textContent = JSON.stringify({ code, message });
}
document.body.dataset.state = 'done';
