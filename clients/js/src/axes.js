// Axis expressions of the manifest, as in `2 * seq`, `min(past + seq, 512)` or `"seq-len" + 1`: a
// name of a dim that is no plain identifier stands in double quotes.
import { BundleError } from './errors.js';

const TOKEN = /\s*(\d+|[A-Za-z_]\w*|"(?:[^"\\]|\\["\\])*"|\/\/|[-+*%(),])/y;
const NAME = /^(?:[A-Za-z_]\w*|"(?:[^"\\]|\\["\\])*")$/;
const FUNCTIONS = new Map([['min', Math.min], ['max', Math.max]]);
const floorDivide = (a, b) => Math.floor(a / b);
const OPERATORS = [
  new Map([['+', (a, b) => a + b], ['-', (a, b) => a - b]]),
  new Map([['*', (a, b) => a * b], ['//', floorDivide], ['%', (a, b) => a - floorDivide(a, b) * b]]),
];

/** The name of the dim that an axis is; undefined for a size and an expression. */
export const dimOf = (axis) => (NAME.test(axis) ? unquoted(axis) : undefined);

const unquoted = (name) => (name.startsWith('"') ? name.slice(1, -1).replace(/\\(.)/g, '$1') : name);

/** A function from dims to the size of the axis, with the names of the dims that it reads. */
export function parseAxis(axis) {
  const names = new Set(), tokens = tokensOf(String(axis));
  const wrong = () => new BundleError(`the manifest has the axis ${axis}, which is not an expression`);
  if (!tokens) throw wrong();

  const chain = (level) => {
    if (level === OPERATORS.length) return term();
    let left = chain(level + 1);
    while (OPERATORS[level].has(tokens[0])) {
      const apply = OPERATORS[level].get(tokens.shift()), one = left, other = chain(level + 1);
      left = (dims) => apply(one(dims), other(dims));
    }
    return left;
  };
  const expect = (token) => {
    if (tokens.shift() !== token) throw wrong();
  };
  const term = () => {
    const token = tokens.shift() ?? '';
    if (token === '-') {
      const negated = term();
      return (dims) => -negated(dims);
    }
    if (token === '(') {
      const inner = chain(0);
      expect(')');
      return inner;
    }
    if (/^\d/.test(token)) return () => Number(token);
    if (!NAME.test(token)) throw wrong();
    if (tokens[0] === '(') return call(FUNCTIONS.get(token));
    const name = unquoted(token);
    names.add(name);
    return (dims) => dims[name];
  };
  const call = (apply) => {
    if (!apply) throw wrong();
    const given = [];
    do {
      tokens.shift();
      given.push(chain(0));
    } while (tokens[0] === ',');
    expect(')');
    return (dims) => apply(...given.map((one) => one(dims)));
  };

  const size = chain(0);
  if (tokens.length) throw wrong();
  return { size, names };
}

function tokensOf(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.trimEnd().length) {
    const match = TOKEN.exec(text);
    if (!match) return null;
    found.push(match[1]);
  }
  return found;
}
