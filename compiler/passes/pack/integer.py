"""Packs the weights of quantized matmuls and convolutions for the processor's 8-bit and 16-bit
dot-product instructions.

The importers write quantized operators in float32, on values that are integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import (
    FUSABLE,
    MOVING,
    CallRewriter,
    is_weight,
    rewrite_functions,
)
from compiler.passes.pack.conv import LAYOUTS, Window, takes_conv
from compiler.passes.pack.integer_programs import (
    Left,
    integer_conv,
    integer_conv_of_rows,
    integer_depthwise,
    integer_matmul,
    integer_sum,
)
from compiler.targets.vector_unit import IntegerDot, VectorUnit
from compiler.tir.exprs import as_int, op_name

CENTRED, SLICE, DEQUANTIZED = "centred", "slice", "dequantize"
"""Names of the importers' programs that subtract a zero point from 8-bit integers, that slice the
depth, and that give reals.
"""
BYTES = ("int8", "uint8")
WIDEST = 255
"""The greatest magnitude of an 8-bit integer less its zero point."""
LEAST_CHANNELS = 8
EXACT = 1 << 24
"""Up to here float32 holds every integer."""


@dataclass(frozen=True)
class PackInteger(ModulePass):
    """Rewrites float32 `matmul(x, constant [K, N])` and NHWC `conv2d(x, constant OHWI)` into
    integer tensor programs.

    Both sides must be known to hold integers of 9 bits. A window of few channels stays in float32,
    which is as exact and then faster.
    """

    unit: VectorUnit
    name = "pack_integer"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function if the processor has an instruction for such sums."""
        if not self.unit.integer_dots:
            return module
        rewritten = rewrite_functions(_Rewriter(module, self.unit))
        # Fusion would keep the floats that nobody reads any more.
        return relax.transform.DeadCodeElimination()(rewritten)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, unit: VectorUnit) -> None:
        super().__init__(module)
        self.width = 2 * unit.lanes(32)
        self.instructions = unit.integer_dots
        self.scalar = any(instruction.scalar for instruction in self.instructions)

    def rewrite(self, call: Any) -> Any:
        name = op_name(call)
        if name == "relax.mean" and self.scalar:
            return self._mean(call)
        if name == "relax.sum" and self.scalar:
            return self._sum(call)
        if name not in ("relax.matmul", "relax.nn.conv2d"):
            return call
        left, right = call.args[0], self.constant_of(call.args[1])
        source = None if right is None else self._from_bytes(left)
        if right is None or source is None:
            return call
        weight = right.value.numpy()
        if (
            not weight.size
            or np.abs(weight).max() > WIDEST
            or not np.array_equal(weight, np.rint(weight))
        ):
            return call
        # 8-bit instructions take a left side of one zero point, by which it is shifted to fit.
        usable = [
            instruction
            for instruction in self.instructions
            if instruction.left == "int16" or _one_zero(source)
        ]
        instruction = next(
            (instruction for instruction in usable if _holds(instruction.right, weight)), None
        )
        if instruction is None:
            return call
        if name == "relax.matmul":
            return (
                self._matmul(left, weight, instruction)
                if is_weight(right) and left.ty.ndim >= 2
                else call
            )
        if not takes_conv(call, *LAYOUTS[name]):
            return call
        if call.attrs.groups != 1:
            return self._depthwise(call, weight, instruction)
        return self._conv(call, weight, instruction)

    def _matmul(self, left: Any, weight: np.ndarray, instruction: IntegerDot) -> Any:
        stored = self._stored(left)
        data, zero = (left, None) if stored is None else stored
        neighbours = zero is not None or instruction.scalar
        return self.builder_.call_te(
            lambda x, packed: integer_matmul(Left(x, zero), packed, weight.shape[1], instruction),
            data,
            relax.const(pack_integers([weight], self.width, instruction, neighbours)),
            primfunc_name_hint="integer_matmul",
            primfunc_attrs=FUSABLE,
        )

    def _conv(self, call: Any, weight: np.ndarray, instruction: IntegerDot) -> Any:
        """The convolution in integers, itself where its window has few channels of floats."""
        window, stored = Window.of(call.attrs, weight.shape[1:3]), self._stored(call.args[0])
        if stored is None and weight.shape[3] < LEAST_CHANNELS and not instruction.scalar:
            return call
        data, zero = (call.args[0], None) if stored is None else stored
        neighbours = zero is not None or instruction.scalar
        if any(window.pads):
            top, left, bottom, right = window.pads
            widths = [0, 0, top, bottom, left, right, 0, 0]
            padded = relax.op.nn.pad(data, widths, pad_value=zero or 0)
            data = self.builder_.emit(padded)
        in_rows = neighbours and window.dilation[1] == 1
        if in_rows:
            # A row of the window lies in a row: groups go over it, since channels may be few.
            weight = weight.reshape(*weight.shape[:2], 1, -1)
        taps = [weight[:, y, x].T for y, x in np.ndindex(*weight.shape[1:3])]
        inner = Window(window.kernel, window.strides, window.dilation, (0, 0, 0, 0))
        compute = integer_conv_of_rows if in_rows else integer_conv
        return self.builder_.call_te(
            lambda x, packed: compute(Left(x, zero), packed, weight.shape[0], inner, instruction),
            data,
            relax.const(pack_integers(taps, self.width, instruction, neighbours)),
            primfunc_name_hint="integer_conv",
            primfunc_attrs=FUSABLE,
        )

    def _depthwise(self, call: Any, weight: np.ndarray, instruction: IntegerDot) -> Any:
        """A convolution of each channel of bytes, itself where it is none."""
        stored = self._stored(call.args[0]) if instruction.scalar else None
        if stored is None or weight.shape[3] != 1 or weight.shape[0] != call.attrs.groups:
            return call
        data, zero = stored
        window = Window.of(call.attrs, weight.shape[1:3])
        taps = weight[..., 0].transpose(1, 2, 0).astype(instruction.right)
        result = self.builder_.call_te(
            lambda x, w: integer_depthwise(Left(x, zero, "int32"), w, window),
            data,
            relax.const(np.ascontiguousarray(taps)),
            primfunc_name_hint="integer_depthwise",
            primfunc_attrs=FUSABLE,
        )
        return relax.op.astype(self.builder_.emit(result), "float32")

    def _stored(self, left: Any) -> tuple[Any, int] | None:
        """The bytes that a left side is made of, in its shape, and their zero point; None where
        they have none in common.
        """
        bound: Any = self.value_of(left)
        if bound is None:
            return None
        if isinstance(bound, relax.Var):
            return self._stored(bound)
        if op_name(bound) in MOVING:
            below = self._stored(bound.args[0])
            if below is None:
                return None
            moved = relax.Call(bound.op, [below[0], *bound.args[1:]], bound.attrs, bound.ty_args)
            return self.builder_.emit(moved), below[1]
        if op_name(bound) == "relax.astype":
            data = bound.args[0]
            return (data, 0) if str(data.ty.dtype) in BYTES else None
        data, *zeros = self._made_by(bound, CENTRED)
        numbers = [self.constant_of(zero) for zero in zeros]
        if len(numbers) != 1 or numbers[0] is None or numbers[0].value.numpy().size != 1:
            return None
        return data, int(numbers[0].value.numpy().reshape(()))

    def _made_by(self, expr: Any, program: str) -> list[Any]:
        """The arguments of the importer's program of that name that gives a value, else None
        alone.
        """
        bound: Any = expr
        while isinstance(bound, relax.Var):
            bound = self.lookup_binding(bound)
        if bound is None or op_name(bound) != "relax.call_tir":
            return [None]
        name = bound.args[0].name_hint.rstrip("0123456789")
        return list(bound.args[1].fields) if name == program else [None]

    def _mean(self, call: Any) -> Any:
        """A mean over known axes of dequantized bytes as a sum of the bytes, itself of others."""
        data, *numbers = self._made_by(call.args[0], DEQUANTIZED)
        values = [self.constant_of(number) for number in numbers]
        axes = [int(axis) for axis in call.attrs.axis or ()]
        if data is None or str(data.ty.dtype) not in BYTES or len(values) != 2 or not axes:
            return call
        extents = [as_int(data.ty.shape.values[axis]) for axis in axes]
        if any(v is None or v.value.numpy().size != 1 for v in values) or None in extents:
            return call
        count = int(np.prod([extent for extent in extents if extent is not None]))
        if not 0 < count * WIDEST <= EXACT:
            return call
        scale, zero = (value.value.numpy().reshape(()) for value in values)
        total = self.builder_.emit(self._add_up(call, data, int(zero), axes))
        floats = self.builder_.emit(relax.op.astype(total, "float32"))
        return relax.op.multiply(floats, relax.const(np.float32(scale) / np.float32(count)))

    def _sum(self, call: Any) -> Any:
        """A sum of bytes that were cast to int32, which would be a buffer of four times the size;
        itself of others.
        """
        stored = self._stored(call.args[0])
        if stored is None or str(call.ty.dtype) != "int32":
            return call
        every = range(stored[0].ty.ndim)
        axes = [int(axis) for axis in (every if call.attrs.axis is None else call.attrs.axis)]
        return self._add_up(call, *stored, axes)

    def _add_up(self, call: Any, data: Any, zero: int, axes: Sequence[int]) -> Any:
        """The program that adds up bytes less a zero point, as the call's sum or mean would."""
        return self.builder_.call_te(
            lambda x: integer_sum(Left(x, zero, "int32"), axes, bool(call.attrs.keepdims)),
            data,
            primfunc_name_hint="integer_sum",
            primfunc_attrs=FUSABLE,
        )

    def _from_bytes(self, expr: Any) -> Any:
        """The call that produces a float32 tensor from 8-bit integers: a cast, or the program that
        subtracts their zero point. None for other tensors.
        """
        bound: Any = self.value_of(expr)
        if bound is None:
            return None
        if isinstance(bound, relax.Var) or op_name(bound) in MOVING:
            return self._from_bytes(bound if isinstance(bound, relax.Var) else bound.args[0])
        if op_name(bound) == "relax.astype":
            return bound if str(bound.args[0].ty.dtype) in BYTES else None
        if op_name(bound) != "relax.call_tir":
            return None
        name, data = bound.args[0].name_hint.rstrip("0123456789"), bound.args[1].fields[0]
        if name == SLICE:
            return self._from_bytes(data)
        return bound if name == CENTRED and str(data.ty.dtype) in BYTES else None


def _one_zero(source: Any) -> bool:
    """True if all elements have one zero point: then those of a row lie within 255 of each other
    and of 0, and fit 8 bits once shifted.
    """
    operands = [] if op_name(source) == "relax.astype" else source.args[1].fields[1:]
    # Dims that no tensor of the program has for an extent are given beside the tensors.
    zeros = [zero for zero in operands if isinstance(zero.ty, relax.TensorType)]
    return all(as_int(extent) == 1 for zero in zeros for extent in zero.ty.shape.values)


def _holds(dtype: str, weight: np.ndarray) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= weight.min() and weight.max() <= limits.max)


def pack_integers(
    taps: Sequence[np.ndarray], width: int, instruction: IntegerDot, neighbours: bool
) -> np.ndarray:
    """Packs [K, N] of each tap of a window as [ceil(N / width), taps * ceil(K / group), width,
    group] of 8 or 16 bits.

    A group holds rows k, k + 1, .. of the depth where it is of `neighbours`, as where the left side
    is of bytes or the instruction scalar; else rows k, k + K/group, k + 2K/group, .. An 8-bit left
    side is shifted to fit the instruction, so its packed weights have one row more: the sums of
    their columns as 32-bit integers, by which the kernel corrects the result.
    """
    group, (depth, columns) = instruction.group, taps[0].shape
    part, panels = -(-depth // group), -(-columns // width)
    dtype = np.int8 if all(_holds("int8", tap) for tap in taps) else np.int16
    padded = np.zeros((len(taps), group * part, panels * width), dtype)
    for index, tap in enumerate(taps):
        padded[index, :depth, :columns] = tap
    parted = (
        padded.reshape(len(taps), part, group, panels, width).swapaxes(1, 2)
        if neighbours
        else padded.reshape(len(taps), group, part, panels, width)
    )
    packed = parted.transpose(3, 0, 2, 4, 1).reshape(panels, -1, width, group)
    if instruction.left == "int16":
        return np.ascontiguousarray(packed)
    totals = padded.sum((0, 1), "<i4").reshape(panels, 1, width, 1).view(np.int8)
    return np.concatenate([packed, totals], 1)
