"""Small TFLite files, written byte by byte as FlatBuffers."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.tflite import schema

_NUMBERS = {name: number for number, name in schema.DTYPES.items()}
_FORMATS = {"int8": "<b", "uint8": "<B", "bool": "<?", "int32": "<i", "uint32": "<I", "int64": "<q",
            "float32": "<f"}  # fmt: skip
_OPTION_TABLES = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "L2_POOL_2D": 5,
    "SVDF": 6, "FULLY_CONNECTED": 8, "SOFTMAX": 9, "CONCATENATION": 10, "ADD": 11,
    "L2_NORMALIZATION": 12, "LOCAL_RESPONSE_NORMALIZATION": 13, "RESIZE_BILINEAR": 15,
    "RESHAPE": 17, "SPACE_TO_DEPTH": 19, "MUL": 21, "GATHER": 23, "MEAN": 27, "SUM": 27,
    "REDUCE_MAX": 27, "REDUCE_MIN": 27, "REDUCE_PROD": 27, "REDUCE_ANY": 27, "REDUCE_ALL": 27,
    "SUB": 28, "DIV": 29, "SQUEEZE": 30, "STRIDED_SLICE": 32, "SPLIT": 35, "CAST": 37,
    "ARG_MAX": 40, "TRANSPOSE_CONV": 49, "SHAPE": 55, "ARG_MIN": 57, "PACK": 59, "ONE_HOT": 61,
    "UNPACK": 64, "UNIDIRECTIONAL_SEQUENCE_LSTM": 71, "RESIZE_NEAREST_NEIGHBOR": 74,
    "LEAKY_RELU": 75, "MIRROR_PAD": 77, "SPLIT_V": 79, "REVERSE_SEQUENCE": 87, "DEPTH_TO_SPACE": 94,
    "BATCH_MATMUL": 101, "CUMSUM": 102, "CALL_ONCE": 103, "VAR_HANDLE": 111, "GELU": 122,
}  # fmt: skip
"""Numbers of the union of options; an operator that is not here has none."""


@dataclass(frozen=True)
class Vector:
    """Scalars of a dtype."""

    dtype: str
    values: Any
    alignment: int = 4


Entry = Any
"""Of a table: (dtype, number), a Vector, a text, a table (by field number), or a list of tables."""


@dataclass
class _Writer:
    data: bytearray = field(default_factory=bytearray)

    def align(self, size: int, ahead: int = 0) -> None:
        while (len(self.data) + ahead) % size:
            self.data.append(0)

    def write(self, entry: Entry) -> int:
        """Append what an offset points to; gives its position."""
        if isinstance(entry, str):
            return self._vector(entry.encode() + b"\0", len(entry.encode()), 4)
        if isinstance(entry, Vector):
            array = np.asarray(entry.values, entry.dtype).reshape(-1)
            size = max(entry.alignment, array.itemsize)
            return self._vector(array.tobytes(), array.size, size)
        return self._tables(entry) if isinstance(entry, list) else self._table(entry)

    def _vector(self, content: bytes, count: int, alignment: int) -> int:
        self.align(4)
        self.align(alignment, 4)
        position = len(self.data)
        self.data += struct.pack("<I", count) + content
        return position

    def _tables(self, entries: Sequence[Entry]) -> int:
        position = self._vector(bytes(4 * len(entries)), len(entries), 4)
        for index, entry in enumerate(entries):
            self._point(position + 4 + 4 * index, entry)
        return position

    def _point(self, where: int, entry: Entry) -> None:
        struct.pack_into("<I", self.data, where, self.write(entry) - where)

    def _table(self, fields: Mapping[int, Entry]) -> int:
        offsets, size, widest = {}, 4, 4
        for number, entry in fields.items():
            width = struct.calcsize(_FORMATS[entry[0]]) if isinstance(entry, tuple) else 4
            size += -size % width
            offsets[number], size, widest = size, size + width, max(widest, width)
        slots = max(fields, default=-1) + 1
        self.align(2)
        layout = len(self.data)
        self.data += struct.pack("<HH", 4 + 2 * slots, size)
        self.data += struct.pack(f"<{slots}H", *(offsets.get(n, 0) for n in range(slots)))
        self.align(widest)
        position = len(self.data)
        self.data += struct.pack("<i", position - layout) + bytes(size - 4)
        for number, entry in fields.items():
            where = position + offsets[number]
            if isinstance(entry, tuple):
                struct.pack_into(_FORMATS[entry[0]], self.data, where, entry[1])
            else:
                self._point(where, entry)
        return position


@dataclass(frozen=True)
class T:
    """A tensor: shape with -1 for axes of any size; scale, zero: numbers or lists by channel."""

    name: str
    shape: Sequence[int]
    dtype: str = "float32"
    data: Any = None
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    variable: bool = False


@dataclass(frozen=True)
class Op:
    """An operator: names of its inputs (empty for one left out) and outputs, options by name."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1


def encode(
    tensors: Sequence[T],
    operators: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *more: tuple[Sequence[T], Sequence[Op]],
) -> bytes:
    """A file of a graph, and of `more` graphs without inputs and outputs."""
    buffers: list[Entry] = [{}]
    codes: list[tuple[str, int]] = []
    graphs = [_graph(tensors, operators, inputs, outputs, buffers, codes)]
    graphs += [_graph(*each, (), (), buffers, codes) for each in more]
    model = {
        0: ("uint32", schema.VERSION),
        1: [_code(*code) for code in codes],
        2: graphs,
        3: "a test",
        4: buffers,
    }
    writer = _Writer(bytearray(b"\0\0\0\0" + schema.MAGIC))
    struct.pack_into("<I", writer.data, 0, writer.write(model))
    return bytes(writer.data)


def write(path: Path, *arguments: Any) -> Path:
    """`encode` into a file."""
    path.write_bytes(encode(*arguments))
    return path


def _code(name: str, version: int) -> Entry:
    number = schema.OPERATORS.index(name) if name in schema.OPERATORS else schema.CUSTOM
    code: dict[int, Entry] = {
        0: ("int8", min(number, 127)),
        2: ("int32", version),
        3: ("int32", number),
    }
    return code if number != schema.CUSTOM else {**code, 1: name}


def _graph(
    tensors: Sequence[T],
    operators: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    buffers: list[Entry],
    codes: list[tuple[str, int]],
) -> Entry:
    numbers = {tensor.name: index for index, tensor in enumerate(tensors)} | {"": -1}

    def operator(op: Op) -> Entry:
        code = (op.name, op.version)
        if code not in codes:
            codes.append(code)
        entry: dict[int, Entry] = {
            0: ("uint32", codes.index(code)),
            1: Vector("int32", [numbers[name] for name in op.inputs]),
            2: Vector("int32", [numbers[name] for name in op.outputs]),
        }
        if op.name in _OPTION_TABLES:
            entry[3] = ("uint8", _OPTION_TABLES[op.name])
            entry[4] = _options(op)
        return entry

    return {
        0: [_tensor(tensor, buffers) for tensor in tensors],
        1: Vector("int32", [numbers[name] for name in inputs]),
        2: Vector("int32", [numbers[name] for name in outputs]),
        3: [operator(op) for op in operators],
        4: "main",
    }


def _options(op: Op) -> Entry:
    if op.name == "VAR_HANDLE":
        return {0: "", 1: op.options["shared_name"]}
    if op.name in ("RESHAPE", "SQUEEZE"):
        return {0: Vector("int32", op.options["axes"])} if "axes" in op.options else {}
    fields = schema.OPTIONS.get(op.name, {})
    if op.name in ("ARG_MAX", "ARG_MIN", "SHAPE"):
        return {0: ("int8", _NUMBERS[op.options.get("dtype", "int32")])}
    return {fields[name][0]: (fields[name][1], value) for name, value in op.options.items()}


def _tensor(tensor: T, buffers: list[Entry]) -> Entry:
    entry: dict[int, Entry] = {
        0: Vector("int32", [1 if size < 0 else size for size in tensor.shape]),
        1: ("int8", _NUMBERS[tensor.dtype]),
        2: ("uint32", 0),
        3: tensor.name,
    }
    if tensor.data is not None:
        content = np.asarray(tensor.data, tensor.dtype).reshape(tensor.shape).tobytes()
        entry[2] = ("uint32", len(buffers))
        buffers.append({0: Vector("uint8", np.frombuffer(content, np.uint8), 16)})
    if tensor.scale is not None:
        scale = np.atleast_1d(tensor.scale)
        zero = np.broadcast_to(tensor.zero, scale.shape)
        entry[4] = {
            2: Vector("float32", scale),
            3: Vector("int64", zero),
            6: ("int32", tensor.axis),
        }
    if tensor.variable:
        entry[5] = ("bool", True)
    if min(tensor.shape, default=1) < 0:
        entry[7] = Vector("int32", tensor.shape)
    return entry
