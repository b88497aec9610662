"""Computes convolutions with channels last, and keeps images in that layout up to the next
convolution.

A convolution computes [N, H, W, C] and is followed by a transpose to [N, C, H, W]. An operator on
such a transpose is rewritten to work on the image below it, followed by a transpose in turn; the
buffers of a tensor program are relabelled for that. Transposes that meet cancel, and bindings that
nothing reads any more are dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.ir.arrays import as_constant, values_of
from compiler.ir.graph.blocks import in_blocks
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.layout.relabel import relabel
from compiler.passes.layout.shuffles import Shuffle, channels_taken, shuffled_groups
from compiler.passes.match.operator_kinds import ELEMENTWISE, REDUCTIONS
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name

RANKS = (4, 5)
"""Ranks of images and of volumes."""

CONVOLUTIONS = {
    "relax.nn.conv2d": (relax.op.nn.conv2d, "NCHW", "NHWC", "OHWI"),
    "relax.nn.conv3d": (relax.op.nn.conv3d, "NCDHW", "NDHWC", "ODHWI"),
}
"""By operator: its constructor, the layout that the importer gives it, and its layouts here."""


@dataclass(frozen=True)
class ChannelsLast(ModulePass):
    """Rewrites float32 convolutions with constant weights, and the operators between them, to
    [N, H, W, C] or [N, D, H, W, C].
    """

    name = "channels_last"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        # An image crosses dataflow blocks where a run-time value becomes a dim between two
        # convolutions, so the blocks are taken down and built again.
        flat = relax.transform.ToNonDataflow()(module)
        return relax.transform.DeadCodeElimination()(in_blocks(rewrite_functions(_Rewriter(flat))))


def to_last(rank: int) -> tuple[int, ...]:
    """The axes of [N, C, H, W] in the order of [N, H, W, C], for any rank."""
    return 0, *range(2, rank), 1


def to_first(rank: int) -> tuple[int, ...]:
    """The axes of [N, H, W, C] in the order of [N, C, H, W], for any rank."""
    return 0, rank - 1, *range(1, rank - 1)


def axes_of(call: Any) -> tuple[int, ...]:
    """The axes of a permute_dims."""
    rank = call.args[0].ty.ndim
    return (
        tuple(int(axis) for axis in call.attrs.axes)
        if call.attrs.axes is not None
        else tuple(range(rank))[::-1]
    )


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.relabelled: dict[Any, Any] = {}
        self.shuffles: dict[Any, Shuffle] = {}
        self.name = ""

    def visit_var_binding_(self, binding: Any) -> None:
        # The model's node is found by the name of the variable, so every part of its new form
        # gets it.
        self.name = binding.var.name
        super().visit_var_binding_(binding)

    def emit(self, value: Any) -> Any:
        """Binds a part of what the binding at hand becomes."""
        return self.builder_.emit(value, self.name)

    def rewrite(self, call: Any) -> Any:
        name = op_name(call)
        if name in CONVOLUTIONS:
            return self._conv(call)
        if name == "relax.permute_dims":
            return self._compose(call)
        if name == "relax.expand_dims":
            return self._expand(call)
        groups = shuffled_groups(call, self.lookup_binding)
        if groups is not None:
            return self._shuffled(call, *groups)
        # Without a transposed operand nothing is gained: the operator stays in the old layout.
        if not any(self._below(arg) is not None for arg in _operands(call)):
            return call
        if name in ELEMENTWISE:
            return self._elementwise(call)
        if name in REDUCTIONS:
            return self._reduction(call)
        handler = {
            "relax.nn.max_pool2d": self._pool,
            "relax.nn.avg_pool2d": self._pool,
            "relax.nn.softmax": self._softmax,
            "relax.nn.log_softmax": self._softmax,
            "relax.concat": self._concat,
            "relax.reshape": self._reshape,
            "relax.squeeze": self._reshape,
            "relax.call_tir": self._program,
        }.get(name)
        return call if handler is None else handler(call)

    def visit_match_cast_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        below, ty = self._below(value), binding.ty
        if below is None or not isinstance(ty, relax.TensorType):
            super().visit_match_cast_(binding)
            return
        # The cast moves below the transpose, so that the transpose can still cancel.
        rank = below.ty.ndim
        shape = (
            [ty.shape.values[axis] for axis in to_last(rank)]
            if isinstance(ty.shape, relax.ShapeExpr)
            else None
        )
        # A cast that forgets the shape is kept: without it TVM would replace the dims of the next
        # cast by what it knows of the old shape.
        below = self.builder_.match_cast(
            below, relax.TensorType(shape, ty.dtype, ndim=rank if shape is None else -1)
        )
        self.set_var_remap(
            binding.var,
            self.builder_.emit(relax.op.permute_dims(below, to_first(rank)), binding.var.name),
        )

    def _below(self, expr: Any) -> Any:
        """y where `expr` is y [N, H, W, C] transposed to [N, C, H, W], else None."""
        bound = self.value_of(expr)
        if op_name(bound) != "relax.permute_dims" or bound.args[0].ty.ndim not in RANKS:
            return None
        return bound.args[0] if axes_of(bound) == to_first(bound.args[0].ty.ndim) else None

    def _last(self, expr: Any, most: int) -> Any:
        """A tensor that broadcasts against [N, C, H, W], of rank `most`, with channels last; a
        scalar or a value that is no tensor is returned as it is.

        An image of lower rank than `most` is transposed anew: its own channels broadcast against
        another axis than the channels of the result.
        """
        below = self._below(expr)
        rank = expr.ty.ndim if isinstance(expr.ty, relax.TensorType) else 0
        if below is not None and rank == most:
            return below
        if rank == 0:
            return expr
        constant = self.constant_of(expr)
        if constant is not None:
            value = values_of(constant)
            last = value.reshape((1,) * (most - rank) + value.shape).transpose(to_last(most))
            return as_constant(last)
        if rank < most:
            expr = self.emit(relax.op.expand_dims(expr, list(range(most - rank))))
        # What the model transposes itself may be in that order already, but for axes of extent 1.
        return self.emit(
            self._compose(self.builder_.normalize(relax.op.permute_dims(expr, to_last(most))))
        )

    def _transpose(self, call: Any) -> Any:
        """Emits a call that computes [N, H, W, C], and returns its transpose to [N, C, H, W]."""
        result = self.emit(call)
        return relax.op.permute_dims(result, to_first(result.ty.ndim))

    def _conv(self, call: Any) -> Any:
        data, weight = call.args
        attrs = call.attrs
        constant = self.constant_of(weight)
        make, first, last, kernel = CONVOLUTIONS[op_name(call)]
        plain = (
            str(attrs.data_layout) == first
            and str(data.ty.dtype) == "float32"
            and str(attrs.out_dtype) in ("None", "", "void", "float32")
        )
        if constant is None or not plain:
            return call
        options = {key: getattr(attrs, key) for key in ("strides", "padding", "dilation", "groups")}
        layouts = {"data_layout": last, "kernel_layout": kernel, "out_layout": last}
        rank = data.ty.ndim
        return self._transpose(
            make(self._last(data, rank), self._last(constant, rank), **options, **layouts)
        )

    def _compose(self, call: Any) -> Any:
        bound = self.value_of(call.args[0])
        if bound is None or op_name(bound) != "relax.permute_dims":
            return call
        axes = [axes_of(bound)[axis] for axis in axes_of(call)]
        return bound.args[0] if axes == sorted(axes) else relax.op.permute_dims(bound.args[0], axes)

    def _elementwise(self, call: Any) -> Any:
        ranks = [arg.ty.ndim for arg in call.args if isinstance(arg.ty, relax.TensorType)]
        most = max(below.ty.ndim for below in map(self._below, call.args) if below is not None)
        if not 0 <= min(ranks) <= max(ranks) <= most:
            return call
        return self._transpose(
            relax.Call(
                call.op, [self._last(arg, most) for arg in call.args], call.attrs, call.ty_args
            )
        )

    def _reduction(self, call: Any) -> Any:
        rank = call.args[0].ty.ndim
        order = to_last(rank)
        axes = (
            list(range(rank))
            if call.attrs.axis is None
            else [int(axis) % rank for axis in call.attrs.axis]
        )
        over = sorted(order.index(axis) for axis in axes)
        reduced = REDUCTIONS[op_name(call)](
            self._below(call.args[0]), over, bool(call.attrs.keepdims)
        )
        if call.attrs.keepdims:
            return self._transpose(reduced)
        left = [axis for axis in order if axis not in axes]
        back = [left.index(axis) for axis in sorted(left)]
        return reduced if back == sorted(back) else relax.op.permute_dims(self.emit(reduced), back)

    def _pool(self, call: Any) -> Any:
        attrs = call.attrs
        if str(attrs.layout) != "NCHW":
            return call
        options = {
            key: getattr(attrs, key)
            for key in (
                "pool_size",
                "strides",
                "padding",
                "dilation",
                "ceil_mode",
                "count_include_pad",
            )
        }
        make = (
            relax.op.nn.max_pool2d
            if op_name(call).endswith("max_pool2d")
            else relax.op.nn.avg_pool2d
        )
        return self._transpose(make(self._below(call.args[0]), **options, layout="NHWC"))

    def _softmax(self, call: Any) -> Any:
        make = (
            relax.op.nn.log_softmax
            if op_name(call).endswith("log_softmax")
            else relax.op.nn.softmax
        )
        rank = call.args[0].ty.ndim
        return self._transpose(
            make(self._below(call.args[0]), to_last(rank).index(int(call.attrs.axis) % rank))
        )

    def _concat(self, call: Any) -> Any:
        parts = _operands(call)
        known = sum(self._below(part) is not None for part in parts)
        # With most parts in the old layout, moving them to the new one costs more than it saves.
        if 2 * known < len(parts) or call.attrs.axis is None:
            return call
        rank = parts[0].ty.ndim
        return self._transpose(
            relax.op.concat(
                [self._last(part, rank) for part in parts],
                to_last(rank).index(int(call.attrs.axis) % rank),
            )
        )

    def _reshape(self, call: Any) -> Any:
        """[N, C, H, W] as [N, C, H * W] is [N, H * W, C] transposed."""
        below, wanted = self._below(call.args[0]), call.ty.shape
        if call.ty.ndim != 3 or not isinstance(wanted, relax.ShapeExpr):
            return call
        n, c, size = wanted.values
        have = below.ty.shape.values
        if not all(
            tvm.sym.Analyzer().can_prove_equal(a, b) for a, b in ((n, have[0]), (c, have[-1]))
        ):
            return call
        return relax.op.permute_dims(
            self.emit(relax.op.reshape(below, relax.ShapeExpr([n, size, c]))), (0, 2, 1)
        )

    def _expand(self, call: Any) -> Any:
        """[N, L, C] transposed, with an axis for the height of an image: [N, 1, L, C]
        transposed.
        """
        bound = self.value_of(call.args[0])
        if (
            op_name(bound) != "relax.permute_dims"
            or axes_of(bound) != (0, 2, 1)
            or [int(axis) for axis in call.attrs.axis] != [2]
        ):
            return call
        return self._transpose(relax.op.expand_dims(bound.args[0], 1))

    def _shuffled(self, call: Any, image: Any, groups: int) -> Any:
        """The channels of a concatenation are taken from its parts, so that it may be dropped."""
        below = self._below(image)
        if below is None:
            return call
        shuffle = Shuffle.of(below, groups, self.lookup_binding(below))
        result = self.emit(shuffle.call(self.builder_))
        self.shuffles[result] = shuffle
        return relax.op.permute_dims(result, to_first(result.ty.ndim))

    def _program(self, call: Any) -> Any:
        """Calls a copy of the tensor program whose buffers have their channels last."""
        ty = call.ty_args[0]
        if (
            len(call.args) > 2
            or not isinstance(ty, relax.TensorType)
            or not isinstance(ty.shape, relax.ShapeExpr)
        ):
            return call
        fields = list(call.args[1].fields)
        shuffle = self.shuffles.get(self._below(fields[0])) if fields else None
        channels = None if shuffle is None else channels_taken(self.module, call)
        if shuffle is not None and channels is not None:
            return self._transpose(shuffle.take(*channels).call(self.builder_))
        changed = tuple(index for index, arg in enumerate(fields) if self._below(arg) is not None)
        if any(fields[index].ty.ndim != ty.ndim for index in changed):
            return call
        # Layers repeat: their calls share one relabelled program.
        key = (call.args[0].name_hint, changed)
        if key not in self.relabelled:
            function = relabel(self.module[call.args[0]], changed, ty.ndim)
            self.relabelled[key] = (
                None
                if function is None
                else self.builder_.add_func(function, call.args[0].name_hint)
            )
        if self.relabelled[key] is None:
            return call
        arguments = [
            self._below(arg) if index in changed else arg for index, arg in enumerate(fields)
        ]
        shape = [ty.shape.values[axis] for axis in to_last(ty.ndim)]
        return self._transpose(
            relax.call_tir(self.relabelled[key], arguments, relax.TensorType(shape, ty.dtype))
        )


def _operands(call: Any) -> Sequence[Any]:
    """The operands of a call; a tuple counts as its fields."""
    operands = []
    for arg in call.args:
        operands += list(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
    return operands
