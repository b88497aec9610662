"""The inputs of a model as declared by its file and redeclared by the request, with every axis
named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.errors import ImportFailed
from compiler.ir.extents import Extent
from compiler.ir.facts import Facts
from compiler.ir.symbols import extent_of
from compiler.ir.values import Value
from relaxd.contract.axes import Axis
from relaxd.contract.request import CompileRequest
from relaxd.contract.tensors import TensorSpec
from relaxd.errors import DeclarationError

ANONYMOUS = frozenset({"", "?", "-1", "0", "None", "none", "null", "unk", "unknown"})


@dataclass(frozen=True)
class FileInput:
    """An input as the model's file declares it. An axis is an int, a name of any spelling, or None;
    `axes` is None if the rank is unknown.
    """

    name: str
    dtype: str
    axes: tuple[int | str | None, ...] | None


def identifier(text: str) -> str:
    """`text` with every character that an identifier may not hold replaced by an underscore."""
    clean = re.sub(r"\W", "_", text, flags=re.ASCII)
    return clean if clean and not clean[0].isdigit() else f"_{clean}"


def axis_from_file(input_name: str, index: int, axis: int | str | None) -> Axis:
    """The axis that a file declares. An anonymous one gets the name `<input>_<index>`, so that no
    two of them count as equal.
    """
    if isinstance(axis, int) and axis > 0:
        return Axis(str(axis))
    if axis is None or isinstance(axis, int) or axis.strip() in ANONYMOUS:
        return Axis(f"{identifier(input_name)}_{index}")
    try:
        return Axis(axis)
    except DeclarationError:
        return Axis(identifier(axis.strip()))


def spec_of(found: FileInput, request: CompileRequest) -> TensorSpec:
    """Apply the request's redeclaration to the input; raises ImportFailed if the two contradict
    each other.
    """
    declared = {spec.name: spec for spec in request.inputs}.get(found.name)
    if declared is None:
        if found.axes is None:
            raise ImportFailed(
                f"the model does not give the rank of input {found.name!r}",
                reason="input_rank",
                field=f"inputs.{found.name}",
                hint=f'declare it: --input "{found.name}={found.dtype}[n,...]"',
            )
        return TensorSpec(
            found.name,
            found.dtype,
            tuple(axis_from_file(found.name, i, axis) for i, axis in enumerate(found.axes)),
        )
    if declared.dtype != found.dtype:
        raise ImportFailed(
            f"input {found.name!r} is {found.dtype} in the model, declared as {declared.dtype}",
            reason="input_dtype",
            field=f"inputs.{found.name}",
        )
    if found.axes is not None and len(found.axes) != len(declared.shape):
        raise ImportFailed(
            f"input {found.name!r} has {len(found.axes)} axes in the model, declared with "
            f"{len(declared.shape)}",
            reason="input_rank",
            field=f"inputs.{found.name}",
        )
    for index, (have, want) in enumerate(zip(found.axes or (), declared.shape, strict=False)):
        if isinstance(have, int) and have > 0 and want.size is not None and want.size != have:
            raise ImportFailed(
                f"axis {index} of input {found.name!r} is {have} in the model, declared as "
                f"{want.size}",
                reason="input_shape",
                field=f"inputs.{found.name}",
            )
    return declared


def declare(
    facts: Facts, specs: Sequence[TensorSpec], request: CompileRequest
) -> list[tuple[Extent, ...]]:
    """Declare every dim of the inputs in `facts` and return each input's extents.

    Raises ImportFailed for a declared dim that the model does not have.
    """
    named = {axis_dim for spec in specs for axis in spec.shape for axis_dim in axis.dims}
    named |= {axis_dim for _, axes in request.shapes for axis in axes for axis_dim in axis.dims}
    table = request.dim_table
    for name in table:
        if name not in named:
            raise ImportFailed(
                f"the model has no dim {name!r}",
                reason="unknown_dim",
                field=f"dims.{name}",
                hint=_known(named),
            )

    def dim(name: str) -> Extent:
        return facts.dim(name, table.get(name))

    # Bare dims first, so that the manifest lists them in the order of the inputs.
    for spec in specs:
        for axis in spec.shape:
            if axis.symbol:
                dim(axis.symbol)
    return [tuple(facts.simplify(extent_of(axis, dim)) for axis in spec.shape) for spec in specs]


def check_rank(name: str, axes: Sequence[Extent], value: Value) -> None:
    """Raise ImportFailed if the request's `shapes` name more or fewer axes than the value has."""
    if len(axes) != len(value.shape):
        raise ImportFailed(
            f"--shape gives {name!r} {len(axes)} axes, it has {len(value.shape)}",
            reason="shape",
            field=f"shapes.{name}",
        )


def check_names(kind: str, names: Iterable[str], inputs: Iterable[str]) -> None:
    """Raise ImportFailed for a declaration that names no input of the model."""
    known = set(inputs)
    for name in names:
        if name not in known:
            raise ImportFailed(
                f"the model has no input {name!r}",
                reason="unknown_input",
                field=f"{kind}.{name}",
                hint=f"its inputs are {', '.join(sorted(known))}",
            )


def _known(names: set[str]) -> str:
    return (
        f"its dims are {', '.join(sorted(names))}"
        if names
        else "every axis of its inputs is fixed; redeclare one with --input to make it a dim"
    )
