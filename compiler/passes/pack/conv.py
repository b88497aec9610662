"""Packs the constant weights of convolutions with channels last, and picks the algorithm: Winograd,
a matmul over window and channels, or a window that slides over a padded image.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax, sym, te, tirx

from compiler.ir.arrays import as_constant, values_of
from compiler.ir.imported import Ranges
from compiler.passes.cpu.families.grouped_conv.program import direct_conv, pack_blocks
from compiler.passes.cpu.families.single_conv.match import STAGE
from compiler.passes.cpu.families.winograd.program import (
    INPUT,
    OUTPUT,
    strip_of,
    transform_weights,
    winograd,
)
from compiler.passes.cpu.families.winograd.tile import width_of
from compiler.passes.cpu.shared.register_tile import panel_width
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import FUSABLE, CallRewriter, reads_of, rewrite_functions
from compiler.passes.pack.matmul import pack_panels
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import as_int, const, op_name, substitute

LAYOUTS = {"relax.nn.conv2d": ("NHWC", "OHWI"), "relax.nn.conv3d": ("NDHWC", "ODHWI")}
"""By operator, the layouts of images and of weights in which it is packed."""


@dataclass(frozen=True)
class Window:
    """Geometry of a two-dimensional convolution: pairs of (height, width); `pads` are top, left,
    bottom, right.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]

    @classmethod
    def of(cls, attrs: Any, kernel: tuple[int, int]) -> "Window":
        """From a convolution's attributes."""
        pads = [int(p) for p in attrs.padding]
        return cls(
            kernel,
            _pair(attrs.strides),
            _pair(attrs.dilation),
            (pads[0], pads[1], pads[2], pads[3]),
        )

    def size(self, height: Any, width: Any) -> tuple[Any, Any]:
        """The extents of the result, simplified as Relax simplifies them: the programs behind it
        are written for that form.
        """
        top, left, bottom, right = self.pads
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        simplify = sym.Analyzer().simplify
        return (
            simplify((height + top + bottom - reach[0]) // self.strides[0] + 1),
            simplify((width + left + right - reach[1]) // self.strides[1] + 1),
        )

    def read(self, data: Any, n: Any, y: Any, x: Any, kh: Any, kw: Any, c: Any) -> Any:
        """The padded input [N, H, W, C] under result (y, x) and window place (kh, kw)."""
        row = y * self.strides[0] + kh * self.dilation[0] - self.pads[0]
        column = x * self.strides[1] + kw * self.dilation[1] - self.pads[1]
        value = data[n, row, column, c]
        if not any(self.pads):
            return value
        inside = tirx.all(row >= 0, row < data.shape[1], column >= 0, column < data.shape[2])
        return tirx.if_then_else(inside, value, tirx.const(0, data.dtype))


def _pair(values: Any) -> tuple[int, int]:
    first, second = (int(value) for value in values)
    return first, second


@dataclass(frozen=True)
class PackConv(ModulePass):
    """Rewrites float32 convolutions with channels last into tensor programs over packed weights.

    ranges: a dim's `opt` decides between layouts of which one is better for small images and the
    other for large ones.
    """

    unit: VectorUnit
    ranges: Ranges = field(default_factory=dict)
    name = "pack_conv"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        rewriter = _Rewriter(module, self.unit, self.ranges)
        return relax.transform.DeadCodeElimination()(rewrite_functions(rewriter))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, unit: VectorUnit, ranges: Ranges) -> None:
        super().__init__(module)
        self.unit = unit
        self.ranges = ranges
        self.used = reads_of(module)

    def visit_call_(self, call: Any) -> Any:
        once = bool(call.args) and self.used[call.args[0]] == 1
        call = self.visit_expr_post_order(call)
        layouts = LAYOUTS.get(op_name(call))
        constant = None if layouts is None else self.constant_of(call.args[1])
        if layouts is None or constant is None or not takes_conv(call, *layouts):
            return call
        data, weight = call.args[0], values_of(constant)
        # Volumes have no kernel of their own: the grouped kernel takes a dense one as one group.
        if weight.ndim > 4:
            return self._group(call, data, weight)
        if call.attrs.groups == 1:
            return self._dense(call, data, weight, once)
        if weight.shape[3] == 1 and weight.shape[0] == call.attrs.groups:
            return self._depthwise(call, data, weight)
        return self._group(call, data, weight)

    def _dense(self, call: Any, data: Any, weight: np.ndarray, once: bool) -> Any:
        """once: whether nothing else reads the image."""
        columns, height, width, channels = weight.shape
        window = Window.of(call.attrs, (height, width))
        lanes = self.unit.lanes(32)
        single = columns == 1 and channels * width >= lanes
        # With few channels the conditions for padding cost more than a padded copy of the image.
        if (single or (channels < lanes and width > 1)) and any(window.pads):
            top, left, bottom, right = window.pads
            data = self.builder_.emit(relax.op.nn.pad(data, [0, 0, top, bottom, left, right, 0, 0]))
            window = Window(window.kernel, window.strides, window.dilation, (0, 0, 0, 0))
        if single:
            return self.builder_.call_te(
                lambda x, weights: _single_conv(x, weights, window),
                data,
                as_constant(weight[0]),
                primfunc_name_hint="single_conv",
                primfunc_attrs=FUSABLE,
            )
        # Integer weights come from a quantized model. Their sums are exact in float32, which
        # Winograd's transforms are not.
        sizes = data.ty.shape.values[0], *window.size(*data.ty.shape.values[1:3])
        if suits_winograd(
            self.unit, self.ranges, sizes, columns, channels, window
        ) and not np.array_equal(weight, np.rint(weight)):
            return self._winograd(data, weight, window)
        panel = panel_width(self.unit, columns)
        packed = as_constant(pack_panels(_as_bytes(weight).reshape(columns, -1).T, panel))
        # Zeros of padding stay zeros, whatever the factors are.
        plain = (height, width) == (1, 1) and not any(window.pads)
        gated = self._gated(data) if once and plain else None
        data, *gate = gated or (data,)
        return self.builder_.call_te(
            lambda x, panels, *gate: _panel_conv(x, panels, columns, panel, window, *gate),
            data,
            packed,
            *gate,
            primfunc_name_hint="panel_conv",
            primfunc_attrs=FUSABLE,
        )

    def _gated(self, data: Any) -> tuple[Any, Any] | None:
        """The image and the factors of its channels whose product `data` is, as squeeze-excite
        blocks have them, None for others.
        """
        bound = self.lookup_binding(data) if isinstance(data, relax.DataflowVar) else None
        if bound is None or op_name(bound) != "relax.multiply":
            return None
        for image, gate in (bound.args, reversed(bound.args)):
            if _is_gate(gate, image):
                return image, gate
        return None

    def _winograd(self, data: Any, weight: np.ndarray, window: Window) -> Any:
        columns = weight.shape[0]
        packed = transform_weights(weight, width_of(self.unit, columns))
        matrices = [relax.const(matrix.astype("float32")) for matrix in (INPUT, OUTPUT)]

        def compute(x: Any, weights: Any, inward: Any, outward: Any) -> Any:
            def read(n: Any, row: Any, column: Any, c: Any) -> Any:
                row, column = row - window.pads[0], column - window.pads[1]
                inside = tirx.all(row >= 0, row < x.shape[1], column >= 0, column < x.shape[2])
                return tirx.if_then_else(inside, x[n, row, column, c], tirx.const(0, x.dtype))

            return winograd(
                x, weights, inward, outward, columns, window.size(x.shape[1], x.shape[2]), read
            )

        name = "winograd_conv"
        return self.builder_.call_te(
            compute,
            data,
            as_constant(packed),
            *matrices,
            primfunc_name_hint=name,
            primfunc_attrs=FUSABLE,
        )

    def _depthwise(self, call: Any, data: Any, weight: np.ndarray) -> Any:
        window = Window.of(call.attrs, weight.shape[1:3])
        packed = as_constant(weight[..., 0].transpose(1, 2, 0))
        return self.builder_.call_te(
            lambda x, taps: _depthwise(x, taps, window),
            data,
            packed,
            primfunc_name_hint="depthwise_conv",
            primfunc_attrs=FUSABLE,
        )

    def _group(self, call: Any, data: Any, weight: np.ndarray) -> Any:
        """Pads the image first, so that the window reads it without conditions."""
        attrs, rank = call.attrs, weight.ndim - 2
        pads = [int(pad) for pad in attrs.padding]
        if any(pads):
            widths = [0, 0, *(pads[i + j] for i in range(rank) for j in (0, rank)), 0, 0]
            data = self.builder_.emit(relax.op.nn.pad(data, widths))
        strides, dilation = (
            tuple(int(value) for value in values) for values in (attrs.strides, attrs.dilation)
        )
        packed = as_constant(pack_blocks(_as_bytes(weight), int(attrs.groups), self.unit))
        return self.builder_.call_te(
            lambda x, weights: direct_conv(
                x, weights, weight.shape[0], weight.shape[1:-1], strides, dilation
            ),
            data,
            packed,
            primfunc_name_hint="grouped_conv",
            primfunc_attrs=FUSABLE,
        )


def _as_bytes(weight: np.ndarray) -> np.ndarray:
    """Weights that are integers of 8 bits as such, as those of a quantized model; others as they
    are.
    """
    limits = np.iinfo(np.int8)
    fits = weight.size and limits.min <= weight.min() and weight.max() <= limits.max
    return weight.astype(np.int8) if fits and np.array_equal(weight, np.rint(weight)) else weight


def _is_gate(gate: Any, image: Any) -> bool:
    """True if `gate` has a factor for each channel of each of the images."""
    shapes = [side.ty.shape for side in (gate, image)]
    if not all(isinstance(shape, relax.ShapeExpr) and len(shape.values) == 4 for shape in shapes):
        return False
    (number, *ones, factors), (images, *spatial, channels) = (shape.values for shape in shapes)
    equal = sym.Analyzer().can_prove_equal
    spread = [as_int(extent) for extent in ones] == [1, 1] != [as_int(each) for each in spatial]
    return spread and equal(number, images) and equal(factors, channels)


def suits_winograd(
    unit: VectorUnit,
    ranges: Ranges,
    sizes: tuple[Any, Any, Any],
    columns: int,
    channels: int,
    window: Window,
) -> bool:
    """True if Winograd is profitable: it reads 4 times the weights for a quarter of the
    multiplications, a loss where tiles are few and channels many. sizes: images, height and width
    of the result.
    """
    plain = window.kernel == (3, 3) and window.strides == (1, 1) == window.dilation
    few = min(channels, columns)
    # Half of a vector of 512 bits is still worth a transform: 24 columns are three such halves.
    strips = [strip_of(each, unit.lanes(32)) for each in (channels, columns)]
    if not plain or unit.registers < 16 or few < 16 or min(strips) < min(unit.lanes(32), 8):
        return False
    images, height, width = (_favoured(extent, ranges) for extent in sizes)
    # Without a favoured size, only small weights: large ones mostly come with few tiles.
    if height is None or width is None:
        return columns * channels <= 1 << 16
    return (images or 1) * -(-height // 4) * -(-width // 4) >= 8


def _favoured(extent: Any, ranges: Ranges) -> int | None:
    """The extent at the favoured values of dims, None if one of its dims has no such value."""
    dims = {
        var: const(dim.opt)
        for var in tirx.analysis.undefined_vars(extent)
        if (dim := ranges.get(var)) is not None and dim.opt is not None
    }
    return as_int(sym.Analyzer().simplify(substitute(extent, dims)))


def takes_conv(call: Any, image: str, kernel: str) -> bool:
    """True if a convolution is all float32, in these layouts."""
    data, weight = call.args
    attrs = call.attrs
    return (
        str(weight.ty.dtype) == "float32" == str(data.ty.dtype)
        and str(attrs.data_layout) == image == str(attrs.out_layout)
        and str(attrs.kernel_layout) == kernel
        and str(attrs.out_dtype) in ("None", "", "void", "float32")
    )


def _panel_conv(
    data: Any, panels: Any, columns: int, panel: int, window: Window, gate: Any = None
) -> Any:
    """gate: what the channels are multiplied by, of windows of one place."""
    channels = int(data.shape[3])
    kh, kw, c = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in zip((*window.kernel, channels), ("kh", "kw", "c"), strict=True)
    )
    width = window.kernel[1]

    def read(n: Any, y: Any, x: Any, kh: Any, kw: Any, c: Any) -> Any:
        value = window.read(data, n, y, x, kh, kw, c)
        return value if gate is None else value * gate[n, 0, 0, c]

    def weight(o: Any) -> Any:
        value = panels[o // panel, (kh * width + kw) * channels + c, o % panel]
        return value if str(panels.dtype) == "float32" else value.astype("float32")

    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", columns)),
        lambda n, y, x, o: te.sum(read(n, y, x, kh, kw, c) * weight(o), axis=[kh, kw, c]),
        name="conv",
    )


def _single_conv(data: Any, weight: Any, window: Window) -> Any:
    """The one result of each place, summed along vectors of the window: a panel of one column would
    be nearly empty. data: padded; weight: [kernel height, kernel width, channels].
    """
    kh, kw, c = (
        te.reduce_axis((0, int(extent)), name=name)
        for extent, name in zip(weight.shape, ("kh", "kw", "c"), strict=True)
    )
    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", 1)),
        lambda n, y, x, o: te.sum(
            window.read(data, n, y, x, kh, kw, c) * weight[kh, kw, c], axis=[kh, kw, c]
        ),
        name=STAGE,
    )


def _depthwise(data: Any, weight: Any, window: Window) -> Any:
    kh, kw = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in zip(window.kernel, ("kh", "kw"), strict=True)
    )
    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), data.shape[3]),
        lambda n, y, x, c: te.sum(
            window.read(data, n, y, x, kh, kw, c) * weight[kh, kw, c], axis=[kh, kw]
        ),
        name="depthwise",
    )
