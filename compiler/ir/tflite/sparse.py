"""Writes out sparse constants, whose zeros a file leaves out.

A sparse tensor is stored axis by axis in its traversal order: an axis is dense, or lists for each
position of the axes before it which of its own positions there are. Blocks split an axis into an
outer and an inner one. https://arxiv.org/abs/1804.10112 (TACO's formats), as TFLite's schema has
them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.tflite.flatbuffer import Table, refuse_malformed

Array = np.ndarray[Any, Any]
_DENSE, _COMPRESSED = 0, 1
_INDEX_TYPES = {1: "int32", 2: "uint16", 3: "uint8"}
"""By the union's number: tables of one vector."""


def decode_sparse(table: Table, stored: Array, shape: Sequence[int], dtype: str) -> Array:
    """The bytes of the dense tensor; raises LoadError."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        refuse_malformed(f"a sparse constant of {dtype}")
    if stored.size % kind.itemsize:
        refuse_malformed(f"a sparse constant has {stored.size} bytes of {dtype}")
    order, blocked = table.array(0, "int32").tolist(), table.array(1, "int32").tolist()
    axes = list(table.tables(2))
    rank = len(shape)
    if sorted(order) != list(range(len(axes))) or len(axes) != rank + len(blocked):
        refuse_malformed("the order of a sparse constant's axes is none")
    if any(not 0 <= axis < rank for axis in blocked) or len(set(blocked)) < len(blocked):
        refuse_malformed("the blocks of a sparse constant are on no axes of it")
    positions, sizes = _positions(axes, math.prod(shape))
    by_axis = dict(zip(order, zip(positions, sizes, strict=True), strict=True))
    values = stored.view(kind) if stored.flags.aligned else stored.copy().view(kind)
    if len(positions[0] if positions else ()) != values.size:
        refuse_malformed("a sparse constant has other positions than values")
    where = []
    for axis, size in enumerate(shape):
        index, extent = by_axis[axis]
        if axis in blocked:
            inner, block = by_axis[rank + blocked.index(axis)]
            index, extent = index * block + inner, extent and extent * block
        # A compressed axis does not state its size.
        if extent not in (None, size) or (index >= size).any():
            refuse_malformed(f"axis {axis} of a sparse constant goes beyond its {size} positions")
        where.append(index)
    dense = np.zeros(shape, kind)
    dense[tuple(where)] = values
    return dense.reshape(-1).view(np.uint8)


def _positions(axes: Sequence[Table], most: int) -> tuple[list[Array], list[Any]]:
    """For each axis in traversal order the positions of all stored values, and its size, None where
    it is compressed.
    """
    positions: list[Array] = []
    sizes: list[int | None] = []
    nodes = 1
    for axis in axes:
        if axis.number(0, "int8") == _DENSE:
            size = axis.number(1, "int32")
            if size < 1 or nodes * size > most:
                refuse_malformed("a sparse constant has more values than its shape")
            own, parents = np.tile(np.arange(size), nodes), np.repeat(np.arange(nodes), size)
            sizes.append(size)
        else:
            own, parents = _compressed(axis, nodes)
            sizes.append(None)
        positions = [*(index[parents] for index in positions), own]
        nodes = len(own)
    return positions, sizes


def _compressed(axis: Table, nodes: int) -> tuple[Array, Array]:
    """The positions that a compressed axis lists, and which position before it each belongs to."""
    segments, indices = _integers(axis, 2), _integers(axis, 4)
    if len(segments) != nodes + 1 or segments[0] != 0 or segments[-1] != len(indices):
        refuse_malformed("the segments of a sparse constant do not cover its positions")
    counts = np.diff(segments)
    if (counts < 0).any() or (indices < 0).any():
        refuse_malformed("the segments of a sparse constant go backwards")
    return indices, np.repeat(np.arange(nodes), counts)


def _integers(axis: Table, number: int) -> Array:
    kind, vector = _INDEX_TYPES.get(axis.number(number, "uint8")), axis.table(number + 1)
    if kind is None or vector is None:
        refuse_malformed("a sparse constant has no positions")
    return vector.array(0, kind).astype(np.int64)
