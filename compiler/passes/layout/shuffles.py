"""Shuffles of channels: reshaped to groups, transposed, and reshaped back.

With channels last a shuffle takes channels from its groups in turn. It is one program that reads
the groups where they are, as parts of a concatenation or of one image, and a slice of it is such a
program for some channels.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx

from compiler.passes.cpu.shared import plan as shared_plan
from compiler.passes.match import op_patterns
from compiler.tir.exprs import Expr, as_int, op_name
from compiler.tir.stages import read_copy


@dataclass(frozen=True)
class Shuffle:
    """`count` channels from `first` on of a shuffle, whose channel i is channel i // groups of
    group i % groups. The groups are the `parts` or, if there is a single one, runs of its channels.
    """

    parts: tuple[Any, ...]
    groups: int
    first: int
    count: int

    @classmethod
    def of(cls, image: Any, groups: int, bound: Any) -> "Shuffle":
        """All channels of an image with channels last; bound: what computes it."""
        channels = as_int(image.ty.shape.values[-1])
        assert channels is not None
        parts = _groups_joined(bound, groups, channels)
        return cls((image,) if parts is None else parts, groups, 0, channels)

    def take(self, first: int, count: int) -> "Shuffle":
        """Some of the channels."""
        return replace(self, first=self.first + first, count=count)

    def call(self, builder: relax.BlockBuilder) -> Any:
        """The call of a program that computes the channels."""
        return builder.call_te(
            self._compute,
            *self.parts,
            primfunc_name_hint="shuffle",
            # Of a shuffle within another one the kernel would read every other element.
            primfunc_attrs={op_patterns.MARK: op_patterns.OPAQUE},
        )

    def _compute(self, *parts: te.Tensor) -> te.Tensor:
        each = int(parts[0].shape[-1]) * len(parts) // self.groups

        def value(*index: tirx.Var) -> Expr:
            *outer, last = index
            group = tirx.floormod(last + self.first, self.groups)
            channel = tirx.floordiv(last + self.first, self.groups)
            if len(parts) == 1:
                return parts[0](*outer, group * each + channel)
            *others, chosen = (part(*outer, channel) for part in parts)
            for number, other in reversed(list(enumerate(others))):
                chosen = tirx.if_then_else(group == number, other, chosen)
            return chosen

        shape = [*parts[0].shape[:-1], tirx.IntImm("int64", self.count)]
        return te.compute(shape, value, name="shuffle")


def _groups_joined(call: Any, groups: int, channels: int) -> tuple[Any, ...] | None:
    """The groups, where the call joins them along its last axis."""
    if op_name(call) != "relax.concat" or not isinstance(call.args[0], relax.Tuple):
        return None
    parts = tuple(call.args[0].fields)
    along_last = int(call.attrs.axis) == call.ty.ndim - 1
    each = [as_int(part.ty.shape.values[-1]) for part in parts]
    return parts if along_last and each == [channels // groups] * groups else None


def shuffled_groups(call: Any, lookup: Callable[[Any], Any]) -> tuple[Any, int] | None:
    """The image with channels first whose channels a reshape gives shuffled, and the number of
    groups; None for any other call.
    """
    swapped = _bound(call, "relax.reshape", lookup)
    grouped = _bound(swapped, "relax.permute_dims", lookup)
    image = grouped.args[0] if op_name(grouped) == "relax.reshape" else None
    if image is None:
        return None
    shapes: list[Any] = [one.ty.shape for one in (image, grouped, call)]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    before, split, after = (list(shape.values) for shape in shapes)
    if len(before) < 3 or len(split) != len(before) + 1 or not _same(before, after):
        return None
    axes = swapped.attrs.axes
    in_turn = axes is not None and list(map(int, axes)) == [0, 2, 1, *range(3, len(split))]
    groups, channels = as_int(split[1]), as_int(before[1])
    unchanged = _same([before[0], *before[2:]], [split[0], *split[3:]])
    if groups is None or channels is None or not 2 <= groups <= shared_plan.MOST_STRANDS:
        return None
    return (image, groups) if in_turn and unchanged else None


def _bound(call: Any, name: str, lookup: Callable[[Any], Any]) -> Any:
    """The call that computes the operand of a call of that operator, None for any other call."""
    if op_name(call) != name or not isinstance(call.args[0], relax.Var):
        return None
    return lookup(call.args[0])


def channels_taken(module: tvm.IRModule, call: Any) -> tuple[int, int] | None:
    """(first, number) of the channels that the call of a program takes of its image with channels
    first, whole along other axes; None for any other call.
    """
    copied = read_copy(module[call.args[0]])
    shapes = [ty.shape for ty in (call.args[1].fields[0].ty, call.ty_args[0])]
    if copied is None or not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    variables, indices = copied
    before, after = (list(shape.values) for shape in shapes)
    first = as_int(tvm.sym.Analyzer().simplify(indices[1] - variables[1]))
    count = as_int(after[1])
    in_place = [index.same_as(var) for var, index in zip(variables, indices, strict=True)]
    takes_all = in_place[0] and all(in_place[2:])
    takes_all = takes_all and _same([before[0], *before[2:]], [after[0], *after[2:]])
    return (first, count) if takes_all and first is not None and count is not None else None


def _same(lhs: list[Any], rhs: list[Any]) -> bool:
    return bool(tvm_ffi.structural_equal(tvm.runtime.convert(lhs), tvm.runtime.convert(rhs)))
