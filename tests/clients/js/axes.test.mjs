import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAxis } from '../../../clients/js/src/axes.js';

const DIMS = { a: 7, b: 2, min: 5 };

test('axes are Python arithmetic', () => {
  const cases = {
    384: 384, a: 7, '2 * a': 14, 'a + b * 3': 13, '(a + b) * 3': 27, 'a - b - 1': 4, 'a // b': 3, '-a // b': -4,
    'a % 4': 3, '-a % 4': 1, 'min(a, b)': 2, 'max(a, b, 9) + min': 14, '-(-a)': 7, 'min(a, max(b, 3)) // 2': 1,
  };
  for (const [text, size] of Object.entries(cases)) assert.equal(parseAxis(text).size(DIMS), size, text);
});

test('anything else is refused', () => {
  for (const text of ['', '2 *', 'a b', '(a', 'min(a', 'f(a)', 'constructor(a)', 'a constructor b', 'a.b', '1e3', 'a ** 2', 'min()'])
    assert.throws(() => parseAxis(text), { code: 'bundle.invalid' }, text);
});
