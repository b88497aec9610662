"""Kernels of every family at the shapes of real models: what is built, what it is called with, how
much it computes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from tests.compiler.passes import families

op = relax.op
Inputs = Mapping[str, tuple[tuple[Any, ...], str]]

WEIGHT_BYTES = 16 << 20
"""Bytes of weights over which a matmul is called, layer by layer: more than L2 keeps, as in a
model, where every layer has its own.
"""


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    graph: of `inputs`, whose named axes have the extents `at`; copies: how many times a call runs
    the kernel; operations: multiplications and additions of one run, 0 where the family is bound by
    memory; bytes: that one run has to read and write.
    """

    family: str
    shape: str
    graph: Callable[..., Any]
    inputs: Inputs
    at: Mapping[str, int]
    operations: int
    bytes: int
    copies: int = 1

    def arrays(self) -> list[np.ndarray]:
        """Inputs, standard normal."""
        random = np.random.default_rng(0)
        shapes = [[self.at.get(axis, axis) for axis in shape] for shape, _ in self.inputs.values()]
        return [random.standard_normal(shape).astype("float32") for shape in shapes]


def _matmul(rows: int, depth: int, columns: int) -> Case:
    size = 4 * depth * columns
    copies = max(min(WEIGHT_BYTES // size, 8), 1)
    draw = partial(np.random.default_rng(0).standard_normal, (depth, columns))
    weights = [(draw() * depth**-0.5).astype("float32") for _ in range(copies)]
    bias = relax.const(np.ones(columns, "float32"))

    def graph(builder: Any, x: Any) -> Any:
        layers = [op.add(op.matmul(x, relax.const(weight)), bias) for weight in weights]
        return relax.Tuple([builder.emit(layer) for layer in layers])

    return Case(
        "matmul",
        f"{rows}x{depth}x{columns}",
        graph,
        {"x": (("m", depth), "float32")},
        {"m": rows},
        2 * rows * depth * columns,
        size + 4 * rows * (depth + columns),
        copies,
    )


def _matmul_dynamic(batch: int, rows: int, depth: int, columns: int) -> Case:
    return Case(
        "matmul_dynamic",
        f"{batch}x{rows}x{depth}x{columns}",
        lambda builder, x, y: op.matmul(x, y),
        {"x": (("b", "m", "k"), "float32"), "y": (("b", "k", "n"), "float32")},
        {"b": batch, "m": rows, "k": depth, "n": columns},
        2 * batch * rows * depth * columns,
        4 * batch * (rows * depth + depth * columns + rows * columns),
    )


def _convolution(
    family: str, channels: int, out: int, kernel: int, size: int, stride: int = 1, groups: int = 1
) -> Case:
    built = families.convolution(channels, out, kernel, stride, groups)
    result = -(-size // stride)
    window = channels // groups * kernel**2
    return Case(
        family,
        f"{channels}->{out} {kernel}x{kernel}/{stride} at {size}",
        built.graph,
        built.inputs,
        {"n": 1, "h": size, "w": size},
        2 * result**2 * out * window,
        4 * (size**2 * channels + result**2 * out + out * window),
    )


def _attention(depth: int, heads: int, batch: int, rows: int) -> Case:
    built = families.attention(depth, depth)
    shapes = {"q": ("b", "m"), "k": ("b", "n"), "v": ("b", "n")}
    inputs = {name: ((*axes, heads * depth), "float32") for name, axes in shapes.items()}
    return Case(
        "attention",
        f"{batch}x{heads} heads of {depth}, {rows} rows",
        built.graph,
        inputs | {"mask": built.inputs["mask"]},
        {"b": batch, "m": rows, "n": rows},
        4 * batch * heads * rows**2 * depth,
        16 * batch * rows * heads * depth,
    )


def _rows(name: str, graph: Callable[[Any], Any], rows: int, columns: int) -> Case:
    return Case(
        "generic",
        f"{name} {rows}x{columns}",
        lambda builder, x: graph(x),
        {"x": (("m", columns), "float32")},
        {"m": rows},
        0,
        8 * prod((rows, columns)),
    )


def _layer_norm(x: Any) -> Any:
    ones = relax.const(np.ones(int(x.ty.shape.values[-1]), "float32"))
    return op.nn.layer_norm(x, ones, ones, [-1])


def cases() -> Iterator[Case]:
    """All of them, family by family."""
    sides = ((384, 384), (384, 1536), (1536, 384), (768, 768), (768, 3072), (3072, 768))
    for depth, columns in (*sides, (512, 512), (512, 30000)):
        for rows in (1, 7, 16, 100, 128, 512):
            yield _matmul(rows, depth, columns)
    yield _matmul_dynamic(12, 128, 64, 128)
    yield _matmul_dynamic(1, 512, 512, 512)
    yield _matmul_dynamic(12, 1, 64, 128)
    for channels, size in ((64, 56), (128, 28), (256, 14), (96, 40)):
        yield _convolution("winograd", channels, channels, 3, size)
    yield _convolution("matmul", 3, 64, 7, 224, stride=2)
    yield _convolution("matmul", 256, 64, 1, 56)
    yield _convolution("matmul", 64, 256, 1, 56)
    yield _convolution("matmul", 512, 512, 3, 7)
    yield _convolution("matmul", 128, 128, 3, 56, stride=2)
    yield _convolution("grouped_conv", 128, 128, 3, 28, groups=4)
    yield _convolution("pooling", 96, 96, 3, 56, groups=96)
    yield _convolution("pooling", 96, 96, 5, 28, groups=96)
    for depth, heads, batch, rows in ((64, 12, 1, 128), (64, 12, 8, 100), (32, 12, 1, 500)):
        yield _attention(depth, heads, batch, rows)
    yield _rows("softmax", op.nn.softmax, 1536, 128)
    yield _rows("layer norm", _layer_norm, 128, 768)
    yield _rows("GELU", op.nn.gelu, 128, 3072)
