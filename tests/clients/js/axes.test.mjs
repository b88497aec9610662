import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dimOf, parseAxis } from '../../../clients/js/src/axes.js';

const DIMS = { a: 7, b: 2, min: 5 };

test('axes are Python arithmetic', () => {
  const cases = {
    384: 384, a: 7, '2 * a': 14, 'a + b * 3': 13, '(a + b) * 3': 27, 'a - b - 1': 4, 'a // b': 3, '-a // b': -4,
    'a % 4': 3, '-a % 4': 1, 'min(a, b)': 2, 'max(a, b, 9) + min': 14, '-(-a)': 7, 'min(a, max(b, 3)) // 2': 1,
  };
  for (const [text, size] of Object.entries(cases)) assert.equal(parseAxis(text).size(DIMS), size, text);
});

test('names of other characters stand in quotes', () => {
  const dims = { 'seq-len': 3, 1: 7, 'a"b\\': 2, 'x,': 9, 批次: 5 };
  const cases = { '2 * "seq-len" + 1': 7, '"1"': 7, '"a\\"b\\\\"': 2, 'min("x,", 3)': 3, '"批次" + "1"': 12 };
  for (const [text, size] of Object.entries(cases)) assert.equal(parseAxis(text).size(dims), size, text);
  const bare = { '"1"': '1', '"a\\"b\\\\"': 'a"b\\', seq: 'seq', '2 * seq': undefined, '"a" + "b"': undefined };
  for (const [text, name] of Object.entries(bare)) assert.equal(dimOf(text), name, text);
  assert.equal(dimOf(4), undefined);
});

test('anything else is refused', () => {
  for (const text of ['', '2 *', 'a b', '(a', 'min(a', 'f(a)', 'constructor(a)', 'a constructor b', 'a.b', '1e3', 'a ** 2', 'min()', '"', '"a', '"a" "b"', '"min"(a, b)'])
    assert.throws(() => parseAxis(text), { code: 'bundle.invalid' }, text);
});
