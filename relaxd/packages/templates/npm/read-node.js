// The bytes of a file beside this module.
import { readFile } from 'node:fs/promises';

export const read = (url) => readFile(url);
