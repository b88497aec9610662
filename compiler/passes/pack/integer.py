"""Packs the weights of quantised matmuls and convolutions for the processor's 8-bit and 16-bit
dot-product instructions.

The importers write quantised operators in float32, on values that are integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.passes.cpu.families.int8.match import STAGE
from compiler.passes.framework.base import Phase
from compiler.passes.graph.rewriting import (
    FUSABLE,
    MOVING,
    constant_of,
    is_weight,
    rewrite_functions,
    with_simple_shape,
)
from compiler.passes.pack.conv import LAYOUTS, Window, takes_conv
from compiler.targets.vector_unit import IntegerProduct, VectorUnit
from compiler.tir.exprs import as_int, op_name

CENTRED, SLICE = "centred", "slice"
"""Names of the importers' programs that subtract a zero point from 8-bit integers, and that slice
the depth.
"""
BYTES = ("int8", "uint8")
WIDEST = 255
"""The greatest magnitude of an 8-bit integer less its zero point."""
LEAST_CHANNELS = 8


@dataclass(frozen=True)
class PackInteger:
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
        return (
            rewrite_functions(_Rewriter(module, self.unit), module)
            if self.unit.integer_products
            else module
        )


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, unit: VectorUnit) -> None:
        super().__init__(module)
        self.width = 2 * unit.lanes(32)
        self.products = unit.integer_products

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = op_name(call)
        if name not in ("relax.matmul", "relax.nn.conv2d"):
            return call
        left, right = call.args[0], constant_of(self, call.args[1])
        made = None if right is None else self._from_bytes(left)
        if right is None or made is None:
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
            product for product in self.products if product.left == "int16" or _one_zero(made)
        ]
        product = next((product for product in usable if _holds(product.right, weight)), None)
        if product is None:
            return call
        if name == "relax.matmul":
            return (
                self._matmul(left, weight, product)
                if is_weight(right) and left.ty.ndim >= 2
                else call
            )
        takes = (
            takes_conv(call, *LAYOUTS[name])
            and call.attrs.groups == 1
            and (weight.shape[3] >= LEAST_CHANNELS or product.scalar)
        )
        return self._conv(call.attrs, left, weight, product) if takes else call

    def _matmul(self, left: Any, weight: np.ndarray, product: IntegerProduct) -> Any:
        return self.builder_.call_te(
            lambda x, packed: _integer_matmul(x, packed, weight.shape[1], product),
            with_simple_shape(self, left),
            relax.const(pack_integers([weight], self.width, product)),
            primfunc_name_hint="integer_matmul",
            primfunc_attrs=FUSABLE,
        )

    def _conv(self, attrs: Any, data: Any, weight: np.ndarray, product: IntegerProduct) -> Any:
        window = Window.of(attrs, weight.shape[1:3])
        narrow = product.scalar and window.dilation[1] == 1
        if any(window.pads):
            top, left, bottom, right = window.pads
            data = with_simple_shape(
                self,
                self.builder_.emit(relax.op.nn.pad(data, [0, 0, top, bottom, left, right, 0, 0])),
            )
        if narrow:
            # A row of the window lies in a row: groups go over it, since channels may be few.
            weight = weight.reshape(*weight.shape[:2], 1, -1)
        taps = [weight[:, y, x].T for y, x in np.ndindex(*weight.shape[1:3])]
        inner = Window(window.kernel, window.strides, window.dilation, (0, 0, 0, 0))
        compute = _integer_conv_of_rows if narrow else _integer_conv
        return self.builder_.call_te(
            lambda x, packed: compute(x, packed, weight.shape[0], inner, product),
            data,
            relax.const(pack_integers(taps, self.width, product)),
            primfunc_name_hint="integer_conv",
            primfunc_attrs=FUSABLE,
        )

    def _from_bytes(self, expr: Any) -> Any:
        """The call that produces a float32 tensor from 8-bit integers: a cast, or the program that
        subtracts their zero point. None for other tensors.
        """
        bound: Any = self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
        if bound is None:
            return None
        if isinstance(bound, relax.Var) or op_name(bound) in MOVING:
            return self._from_bytes(bound if isinstance(bound, relax.Var) else bound.args[0])
        if op_name(bound) == "relax.astype":
            return bound if str(bound.args[0].ty.dtype) in BYTES else None
        if op_name(bound) != "relax.call_tir":
            return None
        name, given = bound.args[0].name_hint.rstrip("0123456789"), bound.args[1].fields[0]
        if name == SLICE:
            return self._from_bytes(given)
        return bound if name == CENTRED and str(given.ty.dtype) in BYTES else None


def _one_zero(made: Any) -> bool:
    """Whether all elements have one zero point: then those of a row lie within 255 of each other
    and of 0, and fit 8 bits once shifted.
    """
    given = [] if op_name(made) == "relax.astype" else made.args[1].fields[1:]
    # Dims that no tensor of the program has for an extent are given beside the tensors.
    zeros = [zero for zero in given if isinstance(zero.ty, relax.TensorType)]
    return all(as_int(extent) == 1 for zero in zeros for extent in zero.ty.shape.values)


def _holds(dtype: str, weight: np.ndarray) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= weight.min() and weight.max() <= limits.max)


def pack_integers(taps: Sequence[np.ndarray], width: int, product: IntegerProduct) -> np.ndarray:
    """Packs [K, N] at each place of a window as [ceil(N / width), places * ceil(K / group), width,
    group] of 8 or 16 bits.

    A group holds rows k, k + K/group, k + 2K/group, .. of the depth, or rows k, k + 1, .. where the
    instruction is scalar. An 8-bit left side is shifted to fit the instruction, so its packed
    weights have one row more: the sums of their columns as 32-bit integers, by which the kernel
    corrects the result.
    """
    group, (depth, columns) = product.group, taps[0].shape
    part, panels = -(-depth // group), -(-columns // width)
    dtype = np.int8 if all(_holds("int8", tap) for tap in taps) else np.int16
    padded = np.zeros((len(taps), group * part, panels * width), dtype)
    for place, tap in enumerate(taps):
        padded[place, :depth, :columns] = tap
    parted = (
        padded.reshape(len(taps), part, group, panels, width).swapaxes(1, 2)
        if product.scalar
        else padded.reshape(len(taps), group, part, panels, width)
    )
    packed = parted.transpose(3, 0, 2, 4, 1).reshape(panels, -1, width, group)
    if product.left == "int16":
        return np.ascontiguousarray(packed)
    sums = padded.sum((0, 1), "<i4").reshape(panels, 1, width, 1).view(np.int8)
    return np.concatenate([packed, sums], 1)


def _place(k: Any, depth: int, product: IntegerProduct) -> tuple[Any, Any]:
    """In which group row `k` of the depth stands, and where in it."""
    part = -(-depth // product.group)
    return (k // product.group, k % product.group) if product.scalar else (k % part, k // part)


def _integer_matmul(left: Any, packed: Any, columns: int, product: IntegerProduct) -> Any:
    *lead, depth = left.shape
    width = int(packed.shape[2])
    k = te.reduce_axis((0, depth), name="k")
    group, within = _place(k, int(depth), product)
    return te.compute(
        (*lead, tirx.IntImm("int64", columns)),
        lambda *at: te.sum(
            left(*at[:-1], k)
            * packed[at[-1] // width, group, at[-1] % width, within].astype("float32"),
            axis=k,
        ),
        name=STAGE,
    )


def _integer_conv(
    data: Any, packed: Any, columns: int, window: Window, product: IntegerProduct
) -> Any:
    channels, (height, width) = int(data.shape[3]), window.kernel
    panel, part = int(packed.shape[2]), -(-channels // product.group)
    kh, kw, c = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in ((height, "kh"), (width, "kw"), (channels, "c"))
    )

    group, within = _place(c, channels, product)

    def at(n: Any, y: Any, x: Any, o: Any) -> Any:
        place = (kh * width + kw) * part + group
        return te.sum(
            window.read(data, n, y, x, kh, kw, c)
            * packed[o // panel, place, o % panel, within].astype("float32"),
            axis=[kh, kw, c],
        )

    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", columns)),
        at,
        name=STAGE,
    )


def _integer_conv_of_rows(
    data: Any, packed: Any, columns: int, window: Window, product: IntegerProduct
) -> Any:
    """As `_integer_conv`, with columns and channels of the window as one axis."""
    channels, (height, width) = int(data.shape[3]), window.kernel
    depth, panel = width * channels, int(packed.shape[2])
    kh, k = te.reduce_axis((0, height), name="kh"), te.reduce_axis((0, depth), name="k")
    group, within = _place(k, depth, product)
    place = kh * -(-depth // product.group) + group

    def at(n: Any, y: Any, x: Any, o: Any) -> Any:
        return te.sum(
            window.read(data, n, y, x, kh, k // channels, k % channels)
            * packed[o // panel, place, o % panel, within].astype("float32"),
            axis=[kh, k],
        )

    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", columns)),
        at,
        name=STAGE,
    )
