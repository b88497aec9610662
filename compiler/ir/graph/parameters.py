"""The parameters of `main`: a variable for every input. A dim that is not itself an axis is solved
for from an axis whose expression holds it.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Expr as PrimExpr

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.signature import identifier
from compiler.ir.graph.values import Tensor
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import Facts
from relaxd.contract.dims.tensors import TensorSpec, storage_of


@dataclass(frozen=True)
class _Size:
    """An axis whose size `raw` comes with the call and must equal the expression `extent`."""

    spec: TensorSpec
    axis: int
    raw: PrimExpr
    extent: PrimExpr


@dataclass(frozen=True)
class Parameters:
    """The variables of `main`. `tensors`, called once the function is under construction, returns
    the inputs with their declared shapes.
    """

    specs: Sequence[TensorSpec]
    shapes: Sequence[tuple[Extent, ...]]
    variables: tuple[relax.Var, ...]
    sizes: tuple[_Size, ...]
    unknown: frozenset[PrimExpr]

    def tensors(self, b: Builder) -> list[Tensor]:
        """The inputs with their declared shapes; raises ImportFailed for a dim that no axis
        determines.
        """
        pending, unknown = list(self.sizes), set(self.unknown)
        while unknown:
            solved = next(
                (solution for size in pending if (solution := _solved(b.facts, size, unknown))),
                None,
            )
            if solved is None:
                raise _unsolved(pending, unknown)
            b.define(*solved)
            unknown.discard(solved[0])
        loose = {size.spec.name for size in self.sizes}
        return [
            dataclasses.replace(
                b.adopt(variable, shape) if spec.name in loose else Tensor(variable, shape, ""),
                dtype=spec.dtype,
            )
            for spec, shape, variable in zip(self.specs, self.shapes, self.variables, strict=True)
        ]


def parameters_of(
    facts: Facts, specs: Sequence[TensorSpec], shapes: Sequence[tuple[Extent, ...]]
) -> Parameters:
    """Make the parameters for inputs of these shapes. An axis gets a size of its own if it holds a
    dim that is not itself an axis.
    """
    plain = {extent for shape in shapes for extent in shape if isinstance(extent, tirx.Var)}
    unknown = {
        var for shape in shapes for extent in shape for var in _dims(extent) if var not in plain
    }
    variables, sizes = [], []
    for spec, shape in zip(specs, shapes, strict=True):
        own: list[Extent] = list(shape)
        for axis, extent in enumerate(shape):
            if any(var in unknown for var in _dims(extent)):
                own[axis] = facts.size(f"{identifier(spec.name)}_size_{axis}")
                sizes.append(_Size(spec, axis, own[axis], extent))
        variables.append(
            relax.Var(
                identifier(spec.name),
                relax.TensorType([ex.prim(extent) for extent in own], storage_of(spec.dtype)),
            )
        )
    return Parameters(specs, shapes, tuple(variables), tuple(sizes), frozenset(unknown))


def _dims(extent: Extent) -> Any:
    return tirx.analysis.undefined_vars(extent) if isinstance(extent, PrimExpr) else ()


def _solved(facts: Facts, size: _Size, unknown: set[PrimExpr]) -> tuple[PrimExpr, Extent] | None:
    """The one unknown dim of an axis that is linear in it, and its value; None if there is no such
    dim.
    """
    dims = [var for var in _dims(size.extent) if var in unknown]
    if len(dims) != 1:
        return None
    (dim,) = dims
    base = _substitute(facts, size.extent, dim, 0)
    slope = facts.simplify(ex.sub(_substitute(facts, size.extent, dim, 1), base))
    if (
        not isinstance(slope, int)
        or slope == 0
        or facts.same(size.extent, ex.add(base, ex.mul(slope, dim))) is not True
    ):
        return None
    return dim, facts.simplify(ex.floordiv(ex.sub(size.raw, base), slope))


def _substitute(facts: Facts, extent: PrimExpr, dim: PrimExpr, value: int) -> Extent:
    """Substitute a value for a dim in an extent."""
    swapped = tvm_ffi.structural.structural_map(
        extent, ((tirx.Var, lambda var: ex.prim(value) if var.same_as(dim) else var),)
    )
    return facts.simplify(swapped)  # type: ignore[no-any-return]


def _unsolved(pending: Sequence[_Size], unknown: set[PrimExpr]) -> ImportFailed:
    name = min(str(var) for var in unknown)
    shown = next(size for size in pending if any(str(var) == name for var in _dims(size.extent)))
    return ImportFailed(
        f"no input gives the dim {name!r}: axis {shown.axis} of {shown.spec.name!r} is "
        f"{shown.spec.shape[shown.axis]}",
        reason="input_shape",
        field=f"inputs.{shown.spec.name}",
        hint=f"declare an axis that is plainly {name}, or a sum or multiple of it such as "
        f"2*{name}+1",
    )
