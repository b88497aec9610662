"""The operators by which a decoder's graph adds low-rank adapters: functions of ONNX, which ONNX
Runtime runs as they stand here, and the importer by a kernel.
"""

from functools import cache

import onnx
from onnx import parser

DOMAIN, INDEX, ADD = "relaxd.adapters", "AdapterIndex", "AddAdapters"
MOST_PARTS = 3
"""The matmuls whose results lie side by side, as those of queries, keys and values."""

_INDEX = """
<domain: "{domain}", opset_import: ["" : 21]>
{name} (adapter, stack) => (index)
{{
  first = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  axes = Constant <value = int64[1] {{0}}> ()
  extent = Shape <start = 0, end = 1> (stack)
  count = Squeeze (extent, axes)
  limit = Add (count, one)
  numbers = Range (first, limit, one)
  narrow = Cast <to = 6> (numbers)
  index = Gather <axis = 0> (narrow, adapter)
}}
"""
_START = """
  starts = Constant <value_ints: ints = @starts> ()
  scales = Constant <value_floats: floats = @scales> ()
  zero = Constant <value = int64[1] {0}> ()
  one = Constant <value = int32[1] {1}> ()
  none = Constant <value = int32[1] {0}> ()
  nothing = Constant <value = float {0.0}> ()
  axes = Constant <value = int64[2] {1, 2}> ()
  before = Sub (index, one)
  row = Max (before, none)
  is_used = Greater (index, none)
  used = Unsqueeze (is_used, axes)
  total = Shape <start = 2, end = 3> (base)
  modules = Constant <value_ints: ints = @modules> ()
  first = Constant <value = int64 {0}> ()
  step = Constant <value = int64 {1}> ()
  last = Constant <value = int64[1] {0}> ()
  ranks_row = Gather <axis = 0> (ranks, row)
  sum0 = Identity (base)
"""
_PART = """
  at{i} = Constant <value = int64[1] {{{i}}}> ()
  down{i}_row = Gather <axis = 0> (down{i}, row)
  up{i}_row = Gather <axis = 0> (up{i}, row)
  turned{i} = Transpose <perm = [0, 2, 1]> (down{i}_row)
  full{i} = MatMul (x, turned{i})
  most{i} = Shape <start = 1, end = 2> (up{i})
  extent{i} = Squeeze (most{i}, last)
  numbers{i} = Range (first, extent{i}, step)
  narrow{i} = Cast <to = 6> (numbers{i})
  module{i} = Gather (modules, at{i})
  rank{i} = Gather <axis = 1> (ranks_row, module{i})
  has{i} = Less (narrow{i}, rank{i})
  axis{i} = Constant <value = int64[1] {{1}}> ()
  kept{i} = Unsqueeze (has{i}, axis{i})
  low{i} = Where (kept{i}, full{i}, nothing)
  scale{i} = Gather (scales, at{i})
  scaled{i} = Mul (low{i}, scale{i})
  high{i} = MatMul (scaled{i}, up{i}_row)
  start{i} = Gather (starts, at{i})
  width{i} = Shape <start = 2, end = 3> (up{i})
  end{i} = Sub (total, start{i})
  rest{i} = Sub (end{i}, width{i})
  pads{i} = Concat <axis = 0> (zero, zero, start{i}, zero, zero, rest{i})
  padded{i} = Pad (high{i}, pads{i})
  delta{i} = Where (used, padded{i}, nothing)
  sum{next} = Add (sum{i}, delta{i})
"""


def add_name(parts: int) -> str:
    """The operator that adds to so many parts of a tensor's columns."""
    return f"{ADD}{parts}"


@cache
def index_function() -> onnx.FunctionProto:
    """(adapter int32 [batch], a stack [adapters, ...]) to the same numbers, which are 0 to the
    number of adapters.
    """
    return parser.parse_function(_INDEX.format(domain=DOMAIN, name=INDEX))


@cache
def add_function(parts: int) -> onnx.FunctionProto:
    """(base [batch, rows, columns], x [batch, rows, depth], index [batch], ranks int32 [adapters,
    modules], then of each part down [adapters, rank, depth] and up [adapters, rank, width]) to
    base, in whose columns from `starts` on `scales` * x @ down.T @ up is added, by the stacks' row
    before `index`, nothing where it is 0; of down and up the first rows alone, as many as `ranks`
    has for that adapter and the part's number among `modules`.
    """
    inputs = "".join(f", down{i}, up{i}" for i in range(parts))
    name = f"{add_name(parts)} <starts, scales, modules>"
    head = f'<domain: "{DOMAIN}", opset_import: ["" : 21]>\n{name}'
    body = "".join(_PART.format(i=i, next=i + 1) for i in range(parts))
    text = f"{head} (base, x, index, ranks{inputs}) => (sum{parts})\n{{{_START}{body}}}"
    return parser.parse_function(text)


def functions() -> dict[str, onnx.FunctionProto]:
    """All of them by name."""
    added = {add_name(parts): add_function(parts) for parts in range(1, MOST_PARTS + 1)}
    return {INDEX: index_function(), **added}
