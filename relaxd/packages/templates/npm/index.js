// @name@, compiled by relaxd for @target@.
@each cpu@
import { load } from 'relaxd';
@end@
@each gpu@
import { loadGpu as load } from 'relaxd';
@end@
import { read } from '#read';

export const ranges = {
@each dims@
  @dim@: { min: @min@, max: @max@, multiple: @multiple@ },
@end@
};

export const shapes = {
@each inputs@
  @tensor@: (dims) => [@shape@],
@end@
};

// Bundlers know files by such literal URLs.
const FILES = {
@each files@
  '@file@': new URL('./bundle/@file@', import.meta.url),
@end@
};

export async function open(options) {
  const names = Object.keys(FILES);
  const contents = await Promise.all(names.map((name) => read(FILES[name])));
  return load(new Map(names.map((name, i) => [name, contents[i]])), options);
}
