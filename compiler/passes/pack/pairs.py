"""Packs the weights of matmuls and convolutions whose operands are cast_to_bfloat16 to bfloat16."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.passes.cpu.families.matmul.bfloat16 import STAGE, load_weight
from compiler.passes.cpu.shared.bfloats import PAIR_DTYPE, cast_to_bfloat16
from compiler.passes.cpu.shared.register_tile import panel_width, panel_widths
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import FUSABLE, CallRewriter, is_weight, rewrite_functions
from compiler.passes.pack.conv import LAYOUTS, Window, takes_conv
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import op_name
from compiler.tir.work import ELEMENT_FLOPS

Array = np.ndarray[Any, Any]


def bits_of_bfloats(values: Array) -> Array:
    """The upper halves of float32 that bfloat16 holds exactly, as uint32."""
    return np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)


def are_bfloats(values: Array) -> bool:
    """True if bfloat16 holds all of some float32 exactly, and none is a NaN."""
    return values.dtype == np.float32 and bool((round_to_bfloat(values) == values).all())


def round_to_bfloat(values: Array) -> Array:
    """The nearest bfloat16 of each float32, even ones where two are equally near, as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    near = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(
        0xFFFF0000
    )
    return np.where(np.isnan(values), np.float32(np.nan), near.view(np.float32))


def pack_pairs(runs: Sequence[Array], width: int) -> Array:
    """Runs of the depth, each [K, N], as int32 [ceil(N / width), pairs of all runs, width]; a run
    of odd length ends with half a pair of zero.
    """
    depth, columns = runs[0].shape
    part, panels = -(-depth // 2), -(-columns // width)
    numbers = np.zeros((len(runs), 2 * part, panels * width), np.uint32)
    for index, run in enumerate(runs):
        numbers[index, :depth, :columns] = bits_of_bfloats(run)
    words = numbers[:, 0::2] | numbers[:, 1::2] << np.uint32(16)
    panelled = words.reshape(len(runs) * part, panels, width).transpose(1, 0, 2)
    return np.ascontiguousarray(panelled).view(PAIR_DTYPE)


@dataclass(frozen=True)
class PackPairs(ModulePass):
    """Rewrites `matmul(x, constant [K, N])` and NHWC `conv2d(x, constant OHWI)` whose x is rounded
    to bfloat16, as `RoundOperands` writes that, into programs over pairs.
    """

    unit: VectorUnit
    name = "pack_pairs"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        rewritten = rewrite_functions(_Rewriter(module, self.unit))
        return relax.transform.DeadCodeElimination()(rewritten)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, unit: VectorUnit) -> None:
        super().__init__(module)
        self.unit = unit
        self.packed: dict[int, tuple[Any, Any]] = {}

    def rewrite(self, call: Any) -> Any:
        name = op_name(call)
        if name not in ("relax.matmul", "relax.nn.conv2d"):
            return call
        right = self.constant_of(call.args[1])
        if right is None or not are_bfloats(right.value.numpy()):
            return call
        plain = self.find_float32_source(call.args[0])
        if plain is None:
            return call
        if name == "relax.matmul":
            return self._matmul(plain, right) if is_weight(right) and plain.ty.ndim > 1 else call
        takes = takes_conv(call, *LAYOUTS[name]) and call.attrs.groups == 1
        return self._conv(call.attrs, plain, right) if takes else call

    def _matmul(self, left: Any, right: Any) -> Any:
        columns = int(right.value.shape[1])
        return self.builder_.call_te(
            _pair_matmul,
            left,
            self._panels(right, lambda weight: [weight], panel_width(self.unit, columns)),
            columns,
            primfunc_name_hint="pair_matmul",
            primfunc_attrs=FUSABLE,
        )

    def _conv(self, attrs: Any, data: Any, right: Any) -> Any:
        columns, height, width, channels = (int(extent) for extent in right.value.shape)
        window = Window.of(attrs, (height, width))
        # Few channels make short runs: of a row of a padded image they are one run.
        joined = channels < self.unit.lanes(32) and width > 1 and window.dilation[1] == 1
        if joined and any(window.pads):
            top, bottom, left, right_pad = (window.pads[i] for i in (0, 2, 1, 3))
            widths = [0, 0, top, bottom, left, right_pad, 0, 0]
            data = self.builder_.emit(relax.op.nn.pad(data, widths))
            window = Window(window.kernel, window.strides, window.dilation, (0, 0, 0, 0))

        def runs(weight: Array) -> list[Array]:
            if joined:
                return [weight[:, y].reshape(columns, -1).T for y in range(height)]
            return [weight[:, y, x].T for y, x in np.ndindex(height, width)]

        return self.builder_.call_te(
            lambda x, panels: _pair_conv(x, panels, columns, window, joined),
            data,
            self._panels(right, runs, _width_for_images(self.unit, columns)),
            primfunc_name_hint="pair_conv",
            primfunc_attrs=FUSABLE,
        )

    def _panels(self, right: Any, runs: Any, width: int) -> Any:
        """The panels of a weight, so many columns wide; layers that share one share them."""
        key = right.__hash__()
        if key not in self.packed:
            packed = pack_pairs(runs(right.value.numpy()), width)
            self.packed[key] = (right, relax.const(packed))
        return self.packed[key][1]


def _width_for_images(unit: VectorUnit, columns: int) -> int:
    """Columns of a panel where rows are many: four vectors where they leave no column empty, which
    took 2048 columns to 0.97 of the time of panels of three, the last one of which is part empty.
    """
    widest = max(panel_widths(unit))
    even = unit.memory_bound and columns % widest == 0
    return widest if even else panel_width(unit, columns)


def _pair_matmul(left: Any, panels: Any, columns: int) -> Any:
    *lead, depth = left.shape
    width = int(panels.shape[2])
    k = te.reduce_axis((0, depth), name="k")
    return te.compute(
        (*lead, tirx.IntImm("int64", columns)),
        lambda *index: te.sum(
            cast_to_bfloat16(left(*index[:-1], k))
            * load_weight(panels, index[-1] // width, k, 0, index[-1] % width),
            axis=k,
        ),
        name=STAGE,
        attrs={ELEMENT_FLOPS: 2 * int(depth)},
    )


def _pair_conv(data: Any, panels: Any, columns: int, window: Window, joined: bool) -> Any:
    channels, (height, width) = int(data.shape[3]), window.kernel
    panel, each = int(panels.shape[2]), channels * width if joined else channels
    taps = ((height, "kh"),) if joined else ((height, "kh"), (width, "kw"))
    where = [te.reduce_axis((0, extent), name=name) for extent, name in taps]
    c = te.reduce_axis((0, each), name="c")
    part = -(-each // 2)

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        kh, kw = (where[0], c // channels) if joined else where
        tap = where[0] if joined else where[0] * width + where[1]
        value = window.read(data, n, y, x, kh, kw, c % channels if joined else c)
        weight = load_weight(panels, o // panel, c, tap * part, o % panel)
        return te.sum(cast_to_bfloat16(value) * weight, axis=[*where, c])

    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", columns)),
        element,
        name=STAGE,
        attrs={ELEMENT_FLOPS: 2 * height * width * channels},
    )
