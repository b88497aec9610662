"""Quantised products and convolutions, which come as integers in float32, by instructions for pairs of 16-bit integers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.passes.graph import constant_of, op_name, rewrite_functions, with_simple_shape
from compiler.passes.kernels.pairs import STAGE
from compiler.passes.machine import Machine
from compiler.passes.pack_conv import LAYOUTS, Window, takes_conv
from compiler.passes.pack_matmul import FUSABLE, is_weight

MOVING = frozenset(f"relax.{name}" for name in ("strided_slice", "reshape", "squeeze", "expand_dims", "permute_dims", "flatten"))
"""Operators that keep elements as they are."""
CENTRED, SLICE = "centred", "slice"
"""Names of the importer's programs that take a zero point from 8-bit integers, and that cut out a part of the depth."""
BYTES = ("int8", "uint8")
WIDEST = 255
"""The greatest magnitude of an 8-bit integer less its zero point."""
LEAST_CHANNELS = 8


@dataclass(frozen=True)
class PackInteger:
    """Rewrites float32 `matmul(x, constant [K, N])` and NHWC `conv2d(x, constant OHWI)` into products of pairs.

    Both sides must be known to hold integers of 9 bits; a window of few channels is left to floats, which are as exact.
    """

    machine: Machine

    def __call__(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with such products replaced, where the machine has the instruction."""
        return module if self.machine.pair_product is None else rewrite_functions(_Rewriter(module, self.machine), module)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, machine: Machine) -> None:
        super().__init__(module)
        self.width = 2 * machine.lanes(32)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = op_name(call)
        if name not in ("relax.matmul", "relax.nn.conv2d"):
            return call
        left, right = call.args[0], constant_of(self, call.args[1])
        if right is None or not self._small(left):
            return call
        weight = right.value.numpy()
        if not weight.size or np.abs(weight).max() > WIDEST or not np.array_equal(weight, np.rint(weight)):
            return call
        if name == "relax.matmul":
            return self._matmul(left, weight) if is_weight(right) and left.ty.ndim >= 2 else call
        takes = takes_conv(call, *LAYOUTS[name]) and call.attrs.groups == 1 and weight.shape[3] >= LEAST_CHANNELS
        return self._conv(call.attrs, left, weight) if takes else call

    def _matmul(self, left: Any, weight: np.ndarray) -> Any:
        return self.builder_.call_te(
            _pair_matmul,
            with_simple_shape(self, left),
            relax.const(pack_pairs(weight, self.width)),
            weight.shape[1],
            primfunc_name_hint="pair_matmul",
            primfunc_attrs=FUSABLE,
        )

    def _conv(self, attrs: Any, data: Any, weight: np.ndarray) -> Any:
        window = Window.of(attrs, weight.shape[1:3])
        if any(window.pads):
            top, left, bottom, right = window.pads
            data = with_simple_shape(self, self.builder_.emit(relax.op.nn.pad(data, [0, 0, top, bottom, left, right, 0, 0])))
        taps = [pack_pairs(weight[:, y, x].T, self.width) for y, x in np.ndindex(*window.kernel)]
        inner = Window(window.kernel, window.strides, window.dilation, (0, 0, 0, 0))
        return self.builder_.call_te(
            lambda x, pairs: _pair_conv(x, pairs, weight.shape[0], inner),
            data,
            relax.const(np.concatenate(taps, 1, dtype=np.result_type(*taps))),
            primfunc_name_hint="pair_conv",
            primfunc_attrs=FUSABLE,
        )

    def _small(self, expr: Any) -> bool:
        """Whether a float32 tensor holds 8-bit integers, less a zero point perhaps."""
        bound: Any = self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
        if bound is None:
            return False
        if isinstance(bound, relax.Var) or op_name(bound) in MOVING:
            return self._small(bound if isinstance(bound, relax.Var) else bound.args[0])
        if op_name(bound) == "relax.astype":
            return str(bound.args[0].ty.dtype) in BYTES
        if op_name(bound) != "relax.call_tir":
            return False
        name, given = bound.args[0].name_hint.rstrip("0123456789"), bound.args[1].fields[0]
        return str(given.ty.dtype) in BYTES if name == CENTRED else name == SLICE and self._small(given)


def pack_pairs(weight: np.ndarray, width: int) -> np.ndarray:
    """[K, N] as [ceil(N / width), ceil(K / 2), width, 2] of 8 or 16 bits: a pair is a row and the one half the depth below it."""
    depth, columns = weight.shape
    half, panels = -(-depth // 2), -(-columns // width)
    padded = np.zeros((2 * half, panels * width), np.int8 if weight.min() >= -128 and weight.max() <= 127 else np.int16)
    padded[:depth, :columns] = weight
    return np.ascontiguousarray(padded.reshape(2, half, panels, width).transpose(2, 1, 3, 0))


def _pair_matmul(left: Any, pairs: Any, columns: int) -> Any:
    *lead, depth = left.shape
    _panels, half, width, _two = (int(extent) for extent in pairs.shape)
    k = te.reduce_axis((0, depth), name="k")
    return te.compute(
        (*lead, tirx.IntImm("int64", columns)),
        lambda *at: te.sum(left(*at[:-1], k) * pairs[at[-1] // width, k % half, at[-1] % width, k // half].astype("float32"), axis=k),
        name=STAGE,
    )


def _pair_conv(data: Any, pairs: Any, columns: int, window: Window) -> Any:
    channels, (height, width) = int(data.shape[3]), window.kernel
    panel, half = int(pairs.shape[2]), -(-channels // 2)
    kh, kw, c = (te.reduce_axis((0, extent), name=name) for extent, name in ((height, "kh"), (width, "kw"), (channels, "c")))

    def at(n: Any, y: Any, x: Any, o: Any) -> Any:
        place = (kh * width + kw) * half + c % half
        return te.sum(
            window.read(data, n, y, x, kh, kw, c) * pairs[o // panel, place, o % panel, c // half].astype("float32"), axis=[kh, kw, c]
        )

    return te.compute((data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", columns)), at, name=STAGE)
