// The files of the bundle that the tests run with, and changed copies of them.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const FOLDER = process.env.RELAXD_BUNDLE;
const NAMES = ['manifest.json', 'model.wasm', 'weights.bin'];

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
export const files = () => Object.fromEntries(NAMES.map((name) => [name, readFileSync(join(FOLDER, name))]));

/** The bundle with another manifest. */
export function changed(change) {
  const all = files(), manifest = JSON.parse(all['manifest.json']);
  change(manifest, all);
  return { ...all, 'manifest.json': Buffer.from(JSON.stringify(manifest)) };
}

/** The bundle with another library, which its manifest knows. */
export function withLibrary(bytes) {
  return changed((manifest, all) => {
    all['model.wasm'] = bytes;
    manifest.files['model.wasm'] = { sha256: sha256(bytes), size: bytes.length };
  });
}
