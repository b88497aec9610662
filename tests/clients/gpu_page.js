// Runs a model that looks rows up in a table: one run at a time, and several at once. The results are the page's text.
import { loadGpu } from './relaxd/index.js';

const names = ['manifest.json', 'model.wasm', 'weights.bin'];
const files = await Promise.all(names.map(async (name) => [name, await (await fetch(`bundle/${name}`)).arrayBuffer()]));
const model = await loadGpu(Object.fromEntries(files));
const indices = await (await fetch('indices.json')).json();

async function looked(given) {
  try {
    const { y } = await model.run({ i: BigInt64Array.from(given, BigInt) }, { n: given.length });
    return Array.from(y.data);
  } catch (error) {
    return `${error.code}: ${error.message}`;
  }
}

const alone = [];
for (const given of indices) alone.push(await looked(given));
document.body.textContent = JSON.stringify({ emulated: model.emulated, alone, together: await Promise.all(indices.map(looked)) });
document.body.dataset.state = 'done';
