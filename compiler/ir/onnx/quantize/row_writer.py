"""Writes products on integers of 8 bits: what weights, and what is multiplied by them, are rounded
to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.ir.onnx.quantize.matmuls import Array, Grid
from compiler.ir.onnx.quantize.node_writer import NodeWriter

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
        nudge: float,
        scales: Mapping[str, Array],
        grids: Mapping[str, Grid],
        stored: Collection[str],
    ) -> None:
        super().__init__()
        self.opset, self.nudge, self.scales, self.grids = opset, nudge, scales, grids
        self.stored = stored
        self.rows: dict[tuple[str, tuple[int, ...]], tuple[str, str | None]] = {}
        self.numbers: dict[str, str] = {}

    def keep(self, node: onnx.NodeProto) -> None:
        """A node as it is, but for values that are stored as bytes."""
        made = onnx.NodeProto()
        made.CopyFrom(node)
        for place, name in enumerate(node.input):
            if name in self.stored:
                made.input[place] = self._number(name)
        self.nodes.append(made)

    def _number(self, name: str) -> str:
        """The name of what the bytes of a value stand for."""
        if name not in self.numbers:
            end = f"{name}{_ENDING}_number"
            whole, _ = self._rounded(name, ())
            step = self.constant(end, np.array([self.grids[name].step], np.float32))
            self.numbers[name] = self.node("Mul", end, whole, step)
        return self.numbers[name]

    def multiply(self, node: onnx.NodeProto, weight: Array) -> None:
        """The product of a node, its operands rounded."""
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type == "Conv":
            self._convolve(node, weight)
            return
        weight = upright(node, weight)
        if node.input[0] in self.scales:
            weight = weight * self.scales[node.input[0]][:, None]
        whole, scales = by_column(weight, 0)
        scales = scales.reshape(-1) * np.float32(attributes.get("alpha", 1.0))
        number, step = self._rounded(node.input[0], (-1,))
        scales = scales * self._step(node)
        end = f"{node.output[0]}{_ENDING}"
        made = self.node("MatMul", f"{end}_sums", number, self.constant(end, whole), label=node)
        biased = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
        result = self._scaled(end, made, step, scales, None if biased else node.output[0])
        if biased:
            bias, beta = node.input[2], np.float32(attributes.get("beta", 1.0))
            if beta != 1:
                bias = self.node("Mul", f"{end}_bias", bias, self.constant(f"{end}_beta", beta))
            self.node("Add", node.output[0], result, bias)

    def _convolve(self, node: onnx.NodeProto, weight: Array) -> None:
        whole, scales = by_column(weight, (1, 2, 3))
        number, step = self._rounded(node.input[0], (1, 2, 3))
        end = f"{node.output[0]}{_ENDING}"
        made = onnx.NodeProto()
        made.CopyFrom(node)
        del made.input[:], made.output[:]
        made.input.extend([number, self.constant(end, whole)])
        made.output.append(f"{end}_sums")
        self.nodes.append(made)
        biased = len(node.input) > 2 and node.input[2]
        scales = scales.reshape(-1, 1, 1) * self._step(node)
        sums = made.output[0]
        result = self._scaled(end, sums, step, scales, None if biased else node.output[0])
        if biased:
            shape = self.constant(f"{end}_shape", np.array([1, -1, 1, 1], np.int64))
            bias = self.node("Reshape", f"{end}_bias", node.input[2], shape)
            self.node("Add", node.output[0], result, bias)

    def _step(self, node: onnx.NodeProto) -> np.float32:
        """What the integers that a product multiplies are worth, 1 where a run finds that."""
        grid = self.grids.get(node.input[0])
        return np.float32(1.0 if grid is None else grid.step)

    def _scaled(
        self, end: str, sums: str, step: str | None, scales: Array, output: str | None
    ) -> str:
        if step is None:
            each = self.constant(f"{end}_scales", scales)
            return self.node("Mul", output or f"{end}_scaled", sums, each)
        columns = self.node("Mul", f"{end}_columns", sums, self.constant(f"{end}_scales", scales))
        return self.node("Mul", output or f"{end}_scaled", columns, step)

    def _rounded(self, name: str, axes: tuple[int, ...]) -> tuple[str, str | None]:
        """The name of a value's integers, as float32, and of what one of them is worth, None where
        a grid says that.
        """
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
            some = self.node("Max", f"{end}_some", greatest, least)
            scaled = self.node("Mul", f"{end}_in", value, self.node("Div", f"{end}_by", most, some))
            if self.nudge:
                moved = self.constant(f"{_ENDING}_nudge", np.float32(MOST * self.nudge))
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
        if self.nudge:
            moved = self.constant(f"{_ENDING}_nudge", np.float32(MOST * self.nudge))
            scaled = self.node("Add", f"{end}_moved", scaled, moved)
        low, high = (
            self.constant(f"{end}_{place}", np.float32(limit - grid.zero))
            for place, limit in (("low", 0), ("high", 255))
        )
        within = self.node("Clip", f"{end}_within", scaled, low, high)
        whole = self.node("Round", f"{end}_whole", within)
        if not grid.zero:
            found = self.node("Cast", f"{end}_bytes", whole, to=TensorProto.UINT8)
            return self.node("Cast", end, found, to=TensorProto.FLOAT)
        zero = self.constant(f"{end}_shift", np.float32(grid.zero))
        moved = self.node("Add", f"{end}_shifted", whole, zero)
        found = self.node("Cast", f"{end}_bytes", moved, to=TensorProto.UINT8)
        one = self.constant(f"{_ENDING}_one", np.float32(1))
        middle = self.constant(f"{end}_zero", np.uint8(grid.zero))
        return self.node("DequantizeLinear", end, found, one, middle)

    def _where_finite(self, output: str, sizes: str, given: str, otherwise: float) -> str:
        """`given` where `sizes` is a number that is not infinite, else the constant."""
        widest = self.constant(f"{_ENDING}_widest", np.finfo(np.float32).max)
        finite = self.node("LessOrEqual", f"{output}_finite", sizes, widest)
        other = self.constant(f"{_ENDING}_{otherwise}", np.float32(otherwise))
        return self.node("Where", output, finite, given, other)

    def _greatest(self, output: str, sizes: str, axes: tuple[int, ...]) -> str:
        if self.opset < _AXES_ARE_INPUTS:
            return self.node("ReduceMax", output, sizes, axes=list(axes), keepdims=1)
        given = self.constant(f"{output}_axes", np.array(axes, np.int64))
        return self.node("ReduceMax", output, sizes, given, keepdims=1)


def upright(node: onnx.NodeProto, weight: Array) -> Array:
    """The weights of a matmul as [depth, columns]."""
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    return weight.T if turned else weight


def by_column(weight: Array, axes: int | tuple[int, ...]) -> tuple[Array, Array]:
    """Integers up to 127 as float32, and what one of each column is worth."""
    greatest = np.abs(weight).max(axis=axes, keepdims=True).astype(np.float32)
    scales = np.where(greatest > _LEAST, greatest, np.float32(MOST)) / np.float32(MOST)
    whole = np.clip(np.rint(weight / scales), -MOST, MOST)
    return whole.astype(np.float32), scales.astype(np.float32)
