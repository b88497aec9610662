"""Reads a file of safetensors that nobody has vouched for: a length, a table as JSON, and the
tensors' bytes.

The package of that name opens files by path and copies what it reads of memory; here a file may be
a part of a tar, and stays mapped.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxd.contract.weight_files.errors import WeightFileError

Array: TypeAlias = np.ndarray[Any, Any]
SIZES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
"""Bytes of an element of each format."""
_MOST_HEADER = 100_000_000
_MOST_TENSORS, _MOST_AXES = 1 << 20, 8


@dataclass(frozen=True)
class Stored:
    """A tensor as its file has it: the name of its format, its shape, and its bytes."""

    kind: str
    shape: tuple[int, ...]
    data: Array


def read_safetensors(name: str, data: Array) -> Mapping[str, Stored]:
    """The tensors of the file, in its memory; raises WeightFileError."""
    table, start = _table(name, data)
    content = data[start:]
    tensors: dict[str, Stored] = {}
    ranges = []
    for tensor, entry in table.items():
        if tensor == "__metadata__":
            continue
        kind, shape, (begin, end) = _entry(name, tensor, entry)
        if end > len(content):
            raise _malformed(name, f"the tensor {tensor!r} extends beyond the end of the file")
        ranges.append((begin, end))
        tensors[tensor] = Stored(kind, shape, content[begin:end])
    covered = 0
    # The format has neither holes nor two tensors in one range.
    for begin, end in sorted(ranges):
        if begin != covered:
            raise _malformed(name, f"byte {min(covered, begin)} belongs to no tensor or to two")
        covered = end
    if covered != len(content):
        raise _malformed(name, f"{len(content) - covered} bytes at its end belong to no tensor")
    return tensors


def as_float32(name: str, stored: Stored) -> Array:
    """The numbers of a tensor; raises WeightFileError for those that are no floats of 16 or 32
    bits.
    """
    if stored.kind == "BF16":
        # The upper half of a float32's bits.
        upper = view_as(stored, "<u2").astype(np.uint32) << 16
        return np.asarray(upper.view(np.float32))
    if stored.kind in ("F16", "F32"):
        return view_as(stored, "<f2" if stored.kind == "F16" else "<f4").astype(np.float32)
    raise WeightFileError(
        f"the tensor {name!r} has the format {stored.kind}, which is not supported",
        reason="folder_format",
        hint="save the model as bfloat16, float16 or float32",
    )


def view_as(stored: Stored, form: str) -> Array:
    """Its bytes as numbers of a form."""
    # A tensor may begin at any byte of its file.
    return np.frombuffer(stored.data.tobytes(), form).reshape(stored.shape)


def _table(name: str, data: Array) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or size > min(_MOST_HEADER, len(data) - 8):
        raise _malformed(name, "its table is longer than the file, or than any")
    try:
        table = json.loads(data[8 : 8 + size].tobytes().decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _malformed(name, "its table is not valid JSON, or has a name twice") from error
    if not isinstance(table, dict) or len(table) > _MOST_TENSORS:
        raise _malformed(name, "its table is none, or too long")
    return table, 8 + size


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a name twice")
    return table


def _entry(name: str, tensor: str, entry: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    try:
        kind, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError) as error:
        raise _malformed(name, f"its table says too little of {tensor!r}") from error
    if not isinstance(kind, str) or kind not in SIZES:
        raise WeightFileError(
            f"the tensor {tensor!r} of {name} has the format {str(kind)[:20]!r}, "
            "which is not supported",
            reason="folder_format",
            hint="save the model as bfloat16, float16 or float32",
        )
    if not (_counts(shape) and _counts(span) and len(shape) <= _MOST_AXES and len(span) == 2):
        raise _malformed(name, f"its table says no shape or place of {tensor!r}")
    size = math.prod(shape) * SIZES[kind]
    if span[1] - span[0] != size:
        raise _malformed(name, f"the tensor {tensor!r} has {size} bytes and another place")
    return kind, tuple(shape), (span[0], span[1])


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in value)


def _malformed(name: str, why: str) -> WeightFileError:
    return WeightFileError(
        f"{name} is malformed: {why}", reason="safetensors", hint="fetch it again"
    )
