"""The inputs of a model as declared by its file and redeclared by the request, with every axis
named.

What a file writes on an axis is the name of a dim, whatever characters it has, and two axes with
the same text are the same dim. It is an expression (`2*seq`, `past + seq`) only where it reads as
one in the words of `relaxd.contract.dims.axes`, and each of its names is a dim by itself: one that
stands alone on an axis of an input, or that the request declares. `batch-size` is a subtraction in
a model with the dims `batch` and `size`, and a name in any other; `1` is a name. A text that stands
for no name (`?`, `-1`, nothing) makes an anonymous axis, which is a dim of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.errors import ImportFailed
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.names import objection_to, quote_name
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError, suggest

if TYPE_CHECKING:
    from compiler.ir.graph.values import Value
    from compiler.ir.shapes.extents import Extent
    from compiler.ir.shapes.facts import Facts

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


class FileAxes:
    """Reads the axes that a model's file declares.

    files: every input whose axes count; request: names the dims that it declares. An anonymous axis
    gets the name `<input>_<index>`, or another one where some dim is called so.
    """

    def __init__(self, files: Sequence[FileInput], request: CompileRequest) -> None:
        redeclared = {spec.name: spec for spec in request.inputs}
        texts = {
            axis
            for file in files
            if file.name not in redeclared
            for axis in file.axes or ()
            if isinstance(axis, str) and not _is_anonymous(axis)
        }
        redeclared_dims = {
            name for spec in redeclared.values() for axis in spec.shape for name in axis.dims
        }
        alone = {axis.symbol for spec in redeclared.values() for axis in spec.shape if axis.symbol}
        self._alone = {text for text in texts if _expression(text) is None} | alone
        self._alone |= request.dim_table.keys()
        self._taken = texts | redeclared_dims | dims_of_shapes(request)

    def axis(self, input_name: str, index: int, axis: int | str | None) -> Axis:
        """The axis of an input; raises ImportFailed for a name that no dim can have."""
        if isinstance(axis, int) and axis > 0:
            return Axis(str(axis))
        if not isinstance(axis, str) or _is_anonymous(axis):
            return Axis(self._unused(f"{identifier(input_name)}_{index}"))
        expression = _expression(axis)
        if expression is not None and expression.dims <= self._alone:
            return expression
        objection = objection_to(axis)
        if objection:
            raise ImportFailed(
                f"axis {index} of input {input_name!r} is called {axis[:40]!r}: {objection}",
                reason="dim_name",
                field=f"inputs.{input_name}",
                hint="declare the input with another name for the axis, as in "
                f'--input "{input_name}=float32[n,...]"',
            )
        return Axis.of_dim(axis)

    def _unused(self, name: str) -> str:
        count, unused = 0, name
        while unused in self._taken:
            count += 1
            unused = f"{name}_{count}"
        self._taken.add(unused)
        return unused


def _is_anonymous(axis: str) -> bool:
    return axis.strip() in ANONYMOUS


def _expression(text: str) -> Axis | None:
    """The text as arithmetic on dims; None for a bare name, a number and what is neither."""
    try:
        axis = Axis(text)
    except DeclarationError:
        return None
    return axis if axis.dims and axis.symbol is None else None


def dims_of_shapes(request: CompileRequest) -> set[str]:
    """The dims that the request's `shapes` name."""
    return {name for _, axes in request.shapes for axis in axes for name in axis.dims}


def specs_of(files: Sequence[FileInput], request: CompileRequest) -> list[TensorSpec]:
    """Apply the request's redeclarations to the inputs; raises ImportFailed if one contradicts the
    file.
    """
    axes = FileAxes(files, request)
    return [_spec_of(file, request, axes) for file in files]


def _spec_of(file: FileInput, request: CompileRequest, axes: FileAxes) -> TensorSpec:
    declared = {spec.name: spec for spec in request.inputs}.get(file.name)
    if declared is None:
        if file.axes is None:
            raise ImportFailed(
                f"the model does not give the rank of input {file.name!r}",
                reason="input_rank",
                field=f"inputs.{file.name}",
                hint=f'declare it: --input "{file.name}={file.dtype}[n,...]"',
            )
        return TensorSpec(
            file.name,
            file.dtype,
            tuple(axes.axis(file.name, i, axis) for i, axis in enumerate(file.axes)),
        )
    if declared.dtype != file.dtype:
        raise ImportFailed(
            f"input {file.name!r} is {file.dtype} in the model, declared as {declared.dtype}",
            reason="input_dtype",
            field=f"inputs.{file.name}",
        )
    if file.axes is not None and len(file.axes) != len(declared.shape):
        raise ImportFailed(
            f"input {file.name!r} has {len(file.axes)} axes in the model, declared with "
            f"{len(declared.shape)}",
            reason="input_rank",
            field=f"inputs.{file.name}",
        )
    for index, (have, want) in enumerate(zip(file.axes or (), declared.shape, strict=False)):
        if isinstance(have, int) and have > 0 and want.size is not None and want.size != have:
            raise ImportFailed(
                f"axis {index} of input {file.name!r} is {have} in the model, declared as "
                f"{want.size}",
                reason="input_shape",
                field=f"inputs.{file.name}",
            )
    return declared


def declare(
    facts: Facts, specs: Sequence[TensorSpec], request: CompileRequest
) -> list[tuple[Extent, ...]]:
    """Declare every dim of the inputs in `facts` and return each input's extents.

    Raises ImportFailed for a declared dim that the model does not have.
    """
    # Here alone TVM is needed: the names of a model's dims are told without it.
    from compiler.ir.shapes.symbols import extent_of

    named = {axis_dim for spec in specs for axis in spec.shape for axis_dim in axis.dims}
    named |= dims_of_shapes(request)
    facts.reserved = frozenset(named)
    table = request.dim_table
    for name in table:
        if name not in named:
            raise ImportFailed(
                f"the model has no dim {name!r}",
                reason="unknown_dim",
                field=f"dims.{name}",
                hint=suggest(name, named, _known(named)),
            )

    def dim(name: str) -> Extent:
        return facts.dim(name, table.get(name))

    # Bare dims first, so that the manifest lists them in the order of the inputs.
    for spec in specs:
        for axis in spec.shape:
            if axis.symbol:
                dim(axis.symbol)
    return [tuple(facts.simplify(extent_of(axis, dim)) for axis in spec.shape) for spec in specs]


def named_axes(facts: Facts, request: CompileRequest) -> dict[str, list[Extent]]:
    """The axes of the values that the request's `shapes` name; `declare` comes first."""
    from compiler.ir.shapes.symbols import extent_of

    table = request.dim_table
    return {
        name: [
            facts.simplify(extent_of(axis, lambda dim: facts.dim(dim, table.get(dim))))
            for axis in axes
        ]
        for name, axes in request.shapes
    }


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
                hint=suggest(name, known, f"its inputs are {', '.join(sorted(known))}"),
            )


def _known(names: set[str]) -> str:
    return (
        f"its dims are {', '.join(map(quote_name, sorted(names)))}"
        if names
        else "every axis of its inputs is fixed; redeclare one with --input to make it a dim"
    )
