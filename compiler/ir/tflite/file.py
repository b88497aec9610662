"""Reads a TFLite file that nobody has vouched for: its graphs of tensors and operators, with every
index in range and every constant as large as its shape says.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import LoadError
from compiler.ir.tflite import schema
from compiler.ir.tflite.flatbuffer import Table, refuse_malformed
from compiler.ir.tflite.sparse import decode_sparse

Array = np.ndarray[Any, Any]
_MOST_AXES = 16
_LARGEST = 1 << 40
"""Elements of a tensor."""


@dataclass(frozen=True)
class Quantization:
    """real = scale * (integer - zero); float32 and int64, one of each or one for each position on
    `axis`.
    """

    scale: Array
    zero: Array
    axis: int = 0

    @property
    def by_tensor(self) -> bool:
        """True for one scale."""
        return self.scale.size == 1


@dataclass(frozen=True)
class Tensor:
    """shape: as the file was converted for; open: its axes of any size; data: the elements of a
    constant; variable: it keeps its content between calls.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    open: frozenset[int] = frozenset()
    data: Array | None = None
    quantization: Quantization | None = None
    variable: bool = False


@dataclass(frozen=True)
class Operator:
    """inputs, outputs: numbers of tensors, -1 for an input that is left out; options: its fields by
    name; version: of the operator.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    new_shape: tuple[int, ...] | None = None
    shared_name: str = ""
    version: int = 1


@dataclass(frozen=True)
class Graph:
    """inputs, outputs: numbers of tensors, in the order of the interpreter's details."""

    tensors: Sequence[Tensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[Operator]


@dataclass(frozen=True)
class File:
    """graphs: the first is the model; names: those of a signature of the first graph, by tensor."""

    graphs: Sequence[Graph]
    input_names: Mapping[int, str] = field(default_factory=dict)
    output_names: Mapping[int, str] = field(default_factory=dict)


def is_tflite(path: Path) -> bool:
    """True for a file with TFLite's mark."""
    try:
        with path.open("rb") as file:
            return file.read(8)[4:] == schema.MAGIC
    except OSError:
        return False


def read_tflite(path: Path) -> File:
    """The file's graphs, constants over its mapped bytes; raises LoadError."""
    return parse_tflite(np.memmap(path, np.uint8, mode="r").data)


def parse_tflite(data: memoryview) -> File:
    """`read_tflite` of bytes."""
    model = Table.root(data)
    version = model.number(0, "uint32")
    if version != schema.VERSION:
        raise LoadError(
            f"TFLite files of schema {version} are not supported",
            reason="tflite_version",
            field="model",
            hint="convert the model again with a current converter",
        )
    buffers = _Buffers(data, list(model.tables(4)))
    names = [_operator_name(code) for code in model.tables(1)]
    graphs = tuple(_graph(table, buffers, names) for table in model.tables(2))
    if not graphs:
        refuse_malformed("it has no graph")
    if not graphs[0].outputs:
        raise LoadError("the model has no output", reason="no_output", field="model")
    return File(graphs, *_signature(model, graphs[0]))


@dataclass(frozen=True)
class _Buffers:
    """The bytes of constants: in their tables, or behind the FlatBuffer where it grew too large."""

    data: memoryview
    tables: Sequence[Table]

    def content(self, number: int) -> Array:
        if not 0 <= number < len(self.tables):
            refuse_malformed(f"buffer {number} of {len(self.tables)} is referred to")
        table = self.tables[number]
        start, size = table.number(1, "uint64"), table.number(2, "uint64")
        if start <= 1:
            return table.array(0, "uint8")
        if start + size > len(self.data):
            refuse_malformed(f"buffer {number} goes past its end")
        return np.frombuffer(self.data, np.uint8, size, start)


def _operator_name(code: Table) -> str:
    """The operator's name; that of a custom one in brackets."""
    # Numbers from 127 on stand in a field of their own.
    number = max(code.number(0, "int8"), code.number(3, "int32"))
    if number == schema.CUSTOM:
        return f"CUSTOM[{code.text(1)}]"
    known = 0 <= number < len(schema.OPERATORS)
    return schema.OPERATORS[number] if known else f"OPERATOR_{number}"


def _graph(table: Table, buffers: _Buffers, names: Sequence[str]) -> Graph:
    tensors = [_tensor(entry, buffers) for entry in table.tables(0)]
    count = len(tensors)
    return Graph(
        tensors,
        _indices(table, 1, count, optional=False),
        _indices(table, 2, count, optional=False),
        [_operator(entry, names, count) for entry in table.tables(3)],
    )


def _indices(table: Table, number: int, count: int, optional: bool) -> tuple[int, ...]:
    indices = tuple(table.array(number, "int32").tolist())
    for index in indices:
        if not (0 <= index < count or (optional and index == -1)):
            refuse_malformed(f"tensor {index} of {count} is referred to")
    return indices


def _operator(table: Table, names: Sequence[str], tensors: int) -> Operator:
    code = table.number(0, "uint32")
    if code >= len(names):
        refuse_malformed(f"operator code {code} of {len(names)} is referred to")
    name, options = names[code], table.table(4)
    fields = schema.OPTIONS.get(name, {})
    values = {
        key: default if options is None else options.number(number, dtype, default)
        for key, (number, dtype, default) in fields.items()
    }
    lists = _lists(name, options)
    return Operator(
        name,
        _indices(table, 1, tensors, optional=True),
        _indices(table, 2, tensors, optional=False),
        values,
        lists,
        options.text(1) if name == "VAR_HANDLE" and options is not None else "",
    )


def _lists(name: str, options: Table | None) -> tuple[int, ...] | None:
    """The integers that options of RESHAPE and SQUEEZE hold."""
    if options is None or name not in ("RESHAPE", "SQUEEZE") or not options.has(0):
        return None
    return tuple(options.array(0, "int32").tolist())


def _tensor(table: Table, buffers: _Buffers) -> Tensor:
    name, kind = table.text(3), table.number(1, "int8")
    shape = tuple(table.array(0, "int32").tolist())
    signature = tuple(table.array(7, "int32").tolist())
    if len(shape) > _MOST_AXES or min(shape, default=0) < -1:
        refuse_malformed(f"the shape of tensor {name!r} is {list(shape)[:_MOST_AXES]}")
    if math.prod(max(size, 1) for size in shape) > _LARGEST:
        refuse_malformed(f"tensor {name!r} has the shape {list(shape)}")
    dtype = schema.DTYPES.get(kind, schema.TYPE_NAMES.get(kind, f"type {kind}"))
    opened = signature if len(signature) == len(shape) else shape
    constant = buffers.content(table.number(2, "uint32"))
    sparsity = table.table(6)
    data = None
    if constant.size:
        stored = constant if sparsity is None else decode_sparse(sparsity, constant, shape, dtype)
        data = _elements(name, dtype, shape, stored)
    return Tensor(
        name,
        dtype,
        shape,
        frozenset(axis for axis, size in enumerate(opened) if size < 0),
        data,
        _quantization(table.table(4), name, shape),
        table.number(5, "bool"),
    )


def _elements(name: str, dtype: str, shape: tuple[int, ...], data: Array) -> Array | None:
    """The elements of a constant; None for types that have no numbers."""
    count = math.prod(shape)
    if dtype == "int4":
        if data.size != (count + 1) // 2:
            refuse_malformed(f"the constant {name!r} has {data.size} bytes for {count} numbers")
        low, high = (data << 4).view(np.int8) >> 4, data.view(np.int8) >> 4
        return np.stack([low, high], -1).reshape(-1)[:count].reshape(shape)
    try:
        kind = np.dtype(dtype)
    except TypeError:
        return None
    if data.size != count * kind.itemsize:
        refuse_malformed(f"the constant {name!r} has {data.size} bytes for {dtype}{list(shape)}")
    aligned = data if data.ctypes.data % kind.itemsize == 0 else data.copy()
    return aligned.view(kind).reshape(shape)


def _quantization(table: Table | None, name: str, shape: tuple[int, ...]) -> Quantization | None:
    if table is None:
        return None
    scale, zero = table.array(2, "float32"), table.array(3, "int64")
    if not scale.size:
        return None
    axis = table.number(6, "int32")
    zero = np.zeros(scale.size, np.int64) if not zero.size else zero
    zero = np.repeat(zero, scale.size) if zero.size == 1 else zero
    fits = scale.size == 1 or (0 <= axis < len(shape) and shape[axis] == scale.size)
    if not fits or zero.size != scale.size:
        refuse_malformed(f"tensor {name!r} has {scale.size} scales and {zero.size} zero points")
    if not (np.isfinite(scale).all() and (scale >= 0).all()):
        refuse_malformed(f"tensor {name!r} has a scale that is no positive number")
    if (np.abs(zero) > 1 << 31).any():
        refuse_malformed(f"tensor {name!r} has a zero point beyond 32 bits")
    return Quantization(scale, zero, axis)


def _signature(model: Table, graph: Graph) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """The names that the only signature of the first graph gives its inputs and outputs; none
    where it leaves one out.
    """
    entries = [entry for entry in model.tables(7) if entry.number(4, "uint32") == 0]
    if len(entries) != 1:
        return {}, {}
    result = []
    for number, tensors in ((0, graph.inputs), (1, graph.outputs)):
        names = {pair.number(1, "uint32"): pair.text(0) for pair in entries[0].tables(number)}
        complete = set(tensors) <= set(names) and len(set(names.values())) == len(names)
        result.append(names if complete and all(names.values()) else {})
    return result[0], result[1]
