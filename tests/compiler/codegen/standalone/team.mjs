// node team.mjs LIBRARY PACKAGE: runs the tasks of team.c on three threads, and prints what they gave.
import { readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';

const [library, folder] = process.argv.slice(2);
const { start } = await import(`${folder}/threads.js`);
const bytes = readFileSync(library), module = await WebAssembly.compile(bytes);
const { exports, threads, close } = await start(module, bytes, 'unit', 3);
const results = { threads };
results.together = exports.unit_together(3);
await setTimeout(100);
results.afterSleep = exports.unit_together(2);
results.status = exports.unit_failing(7);
results.trap = exports.unit_failing(8);
results.afterTrap = exports.unit_together(3);
results.late = exports.unit_failing(9);
exports.unit_team(2, 0);
results.lateWithoutWaiting = exports.unit_failing(9);
close();
exports.unit_team(0, 0);
results.alone = exports.unit_together(1);
console.log(JSON.stringify(results));
