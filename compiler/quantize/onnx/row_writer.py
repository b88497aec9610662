"""Writes matmuls on integers of 8 bits: how weights, and what is multiplied by them, are
quantized.
"""

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.quantize.onnx.matmuls import Array, Grid
from compiler.quantize.onnx.node_writer import NodeWriter

MOST = 127.0
_LEAST = 2.0**-120
"""What the greatest magnitude of a row is taken for at least, so that its inverse is finite."""
_AXES_ARE_INPUTS = 18
_ENDING = "__row_bytes"


class RowWriter(NodeWriter):
    """Writes nodes, and the constants that they read.

    stored: the values that are bytes in memory, so that whatever else reads them gets their numbers
    as they are rounded.
    """

    def __init__(
        self,
        opset: int,
        perturbation: float,
        scales: Mapping[str, Array],
        grids: Mapping[str, Grid],
        stored: Collection[str],
    ) -> None:
        super().__init__()
        self.opset, self.perturbation, self.scales, self.grids = opset, perturbation, scales, grids
        self.stored = stored
        self.rows: dict[tuple[str, tuple[int, ...]], tuple[str, str | None]] = {}
        self.numbers: dict[str, str] = {}

    def keep(self, node: onnx.NodeProto) -> None:
        """A node as it is, but for values that are stored as bytes."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for index, name in enumerate(node.input):
            if name in self.stored:
                copy.input[index] = self._number(name)
        self.nodes.append(copy)

    def _number(self, name: str) -> str:
        """The name of what the bytes of a value stand for."""
        if name not in self.numbers:
            end = f"{name}{_ENDING}_number"
            integers, _ = self._quantized(name, ())
            step = self.constant(end, np.array([self.grids[name].step], np.float32))
            self.numbers[name] = self.node("Mul", end, integers, step)
        return self.numbers[name]

    def multiply(self, node: onnx.NodeProto, weight: Array) -> None:
        """A node's matmul, its operands quantized."""
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type == "Conv":
            self._convolve(node, weight)
            return
        weight = upright(node, weight)
        if node.input[0] in self.scales:
            weight = weight * self.scales[node.input[0]][:, None]
        integers, scales = by_column(weight, 0)
        scales = scales.reshape(-1) * np.float32(attributes.get("alpha", 1.0))
        number, step = self._quantized(node.input[0], (-1,))
        scales = scales * self._step(node)
        end = f"{node.output[0]}{_ENDING}"
        total = self.node("MatMul", f"{end}_sums", number, self.constant(end, integers), label=node)
        biased = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
        result = self._scaled(end, total, step, scales, None if biased else node.output[0])
        if biased:
            bias, beta = node.input[2], np.float32(attributes.get("beta", 1.0))
            if beta != 1:
                bias = self.node("Mul", f"{end}_bias", bias, self.constant(f"{end}_beta", beta))
            self.node("Add", node.output[0], result, bias)

    def _convolve(self, node: onnx.NodeProto, weight: Array) -> None:
        integers, scales = by_column(weight, (1, 2, 3))
        number, step = self._quantized(node.input[0], (1, 2, 3))
        end = f"{node.output[0]}{_ENDING}"
        convolution = onnx.NodeProto()
        convolution.CopyFrom(node)
        del convolution.input[:], convolution.output[:]
        convolution.input.extend([number, self.constant(end, integers)])
        convolution.output.append(f"{end}_sums")
        self.nodes.append(convolution)
        biased = len(node.input) > 2 and node.input[2]
        scales = scales.reshape(-1, 1, 1) * self._step(node)
        total = convolution.output[0]
        result = self._scaled(end, total, step, scales, None if biased else node.output[0])
        if biased:
            shape = self.constant(f"{end}_shape", np.array([1, -1, 1, 1], np.int64))
            bias = self.node("Reshape", f"{end}_bias", node.input[2], shape)
            self.node("Add", node.output[0], result, bias)

    def _step(self, node: onnx.NodeProto) -> np.float32:
        """The static scale of a matmul's integers, 1 where a run computes it."""
        grid = self.grids.get(node.input[0])
        return np.float32(1.0 if grid is None else grid.step)

    def _scaled(
        self, end: str, total: str, step: str | None, scales: Array, output: str | None
    ) -> str:
        if step is None:
            each = self.constant(f"{end}_scales", scales)
            return self.node("Mul", output or f"{end}_scaled", total, each)
        columns = self.node("Mul", f"{end}_columns", total, self.constant(f"{end}_scales", scales))
        return self.node("Mul", output or f"{end}_scaled", columns, step)

    def _quantized(self, name: str, axes: tuple[int, ...]) -> tuple[str, str | None]:
        """Names of a value's integers, as float32, and of their scale, None where a grid has it."""
        if name in self.grids:
            axes = ()
            if (name, axes) not in self.rows:
                self.rows[name, axes] = self._on_grid(name, self.grids[name]), None
        if (name, axes) not in self.rows:
            end, value = f"{name}{_ENDING}{len(self.rows)}", name
            if axes == (-1,) and name in self.scales:
                inverse = self.constant(f"{end}_channels", 1 / self.scales[name])
                value = self.node("Mul", f"{end}_smooth", name, inverse)
            sizes = self.node("Abs", f"{end}_sizes", value)
            # A maximum may pass over NaN, so a number that is not finite counts as infinity.
            sizes = self._where_finite(f"{end}_known", sizes, sizes, np.inf)
            greatest = self._greatest(f"{end}_greatest", sizes, axes)
            most = self.constant(f"{_ENDING}_most", np.float32(MOST))
            least = self.constant(f"{_ENDING}_least", np.float32(_LEAST))
            each = self.node("Div", f"{end}_each", greatest, most)
            step = self._where_finite(f"{end}_step", greatest, each, np.nan)
            positive = self.node("Max", f"{end}_some", greatest, least)
            scaled = self.node(
                "Mul", f"{end}_in", value, self.node("Div", f"{end}_by", most, positive)
            )
            if self.perturbation:
                moved = self.constant(f"{_ENDING}_nudge", np.float32(MOST * self.perturbation))
                scaled = self.node("Add", f"{end}_moved", scaled, moved)
            near = self.node("Round", f"{end}_near", scaled)
            self.node("Cast", f"{end}_bytes", near, to=TensorProto.INT8)
            number = self.node("Cast", end, f"{end}_bytes", to=TensorProto.FLOAT)
            self.rows[name, axes] = number, step
        return self.rows[name, axes]

    def _on_grid(self, name: str, grid: Grid) -> str:
        """The name of a value's integers on a grid, as float32."""
        end = f"{name}{_ENDING}_grid"
        each = np.float32(grid.step) * self.scales.get(name, np.float32(1))
        # Not scalars, which would be part of the code: layers that are alike share a kernel.
        inverse = self.constant(f"{end}_inverse", np.reshape(np.float32(1) / each, -1))
        scaled = self.node("Mul", f"{end}_in", name, inverse)
        if self.perturbation:
            moved = self.constant(f"{_ENDING}_nudge", np.float32(MOST * self.perturbation))
            scaled = self.node("Add", f"{end}_moved", scaled, moved)
        low, high = (
            self.constant(f"{end}_{side}", np.float32(limit - grid.zero))
            for side, limit in (("low", 0), ("high", 255))
        )
        within = self.node("Clip", f"{end}_within", scaled, low, high)
        nearest = self.node("Round", f"{end}_whole", within)
        if not grid.zero:
            integers = self.node("Cast", f"{end}_bytes", nearest, to=TensorProto.UINT8)
            return self.node("Cast", end, integers, to=TensorProto.FLOAT)
        zero = self.constant(f"{end}_shift", np.float32(grid.zero))
        moved = self.node("Add", f"{end}_shifted", nearest, zero)
        integers = self.node("Cast", f"{end}_bytes", moved, to=TensorProto.UINT8)
        one = self.constant(f"{_ENDING}_one", np.float32(1))
        middle = self.constant(f"{end}_zero", np.uint8(grid.zero))
        return self.node("DequantizeLinear", end, integers, one, middle)

    def _where_finite(self, output: str, sizes: str, values: str, otherwise: float) -> str:
        """`values` where `sizes` is a number that is not infinite, else the constant."""
        widest = self.constant(f"{_ENDING}_widest", np.finfo(np.float32).max)
        finite = self.node("LessOrEqual", f"{output}_finite", sizes, widest)
        other = self.constant(f"{_ENDING}_{otherwise}", np.float32(otherwise))
        return self.node("Where", output, finite, values, other)

    def _greatest(self, output: str, sizes: str, axes: tuple[int, ...]) -> str:
        if self.opset < _AXES_ARE_INPUTS:
            return self.node("ReduceMax", output, sizes, axes=list(axes), keepdims=1)
        positions = self.constant(f"{output}_axes", np.array(axes, np.int64))
        return self.node("ReduceMax", output, sizes, positions, keepdims=1)


def upright(node: onnx.NodeProto, weight: Array) -> Array:
    """The weights of a matmul as [depth, columns]."""
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    return weight.T if turned else weight


def by_column(weight: Array, axes: int | tuple[int, ...]) -> tuple[Array, Array]:
    """Integers up to 127 as float32, and the scale of each column."""
    greatest = np.abs(weight).max(axis=axes, keepdims=True).astype(np.float32)
    scales = np.where(greatest > _LEAST, greatest, np.float32(MOST)) / np.float32(MOST)
    integers = np.clip(np.rint(weight / scales), -MOST, MOST)
    return integers.astype(np.float32), scales.astype(np.float32)
