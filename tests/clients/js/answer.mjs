// node answer.mjs PACKAGE FOLDER: what the bundle makes of the numbers of point.json, as JSON.
import { readFile } from 'node:fs/promises';

const [folder, bundle] = process.argv.slice(2);
const { load } = await import(`${folder}/index.js`);
const names = ['manifest.json', 'model.wasm', 'weights.bin'];
const files = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await readFile(`${bundle}/${name}`)])));
const x = Float32Array.from(JSON.parse(await readFile(`${bundle}/point.json`, 'utf8')));
const model = await load(files);
console.log(JSON.stringify([...model.run({ x }, {}).y.data]));
