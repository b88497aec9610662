"""The dims of a program: torch's symbols under the names of the inputs' axes, in the ranges of the
file and of the request.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.errors import ImportFailed
from compiler.ir.graph.signature import FileInput, check_names, identifier, specs_of
from compiler.ir.pt2.program import Argument, Program, Stored
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import option_name, quote_name
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest


@dataclass(frozen=True)
class Declared:
    """The inputs with their axes in named dims; the request with the ranges of the file; what each
    of torch's symbols is; and the state among the inputs, by its path.
    """

    specs: list[TensorSpec]
    request: CompileRequest
    symbols: Mapping[str, Axis]
    states: tuple[str, ...]


def declare_program(program: Program, states: list[Stored], request: CompileRequest) -> Declared:
    """Name every symbol, by the axes that the request redeclares, else by the input's own name and
    the axis, as `x_0`; raises ImportFailed where request and file contradict each other.
    """
    paths = [state.path for state in states]
    arguments = {argument.name: argument for argument in program.arguments}
    check_names("inputs", (spec.name for spec in request.inputs), [*arguments, *paths])
    check_names("consts", (name for name, _ in request.consts), [])
    redeclared = {spec.name: spec for spec in request.inputs}
    symbols: dict[str, Axis] = {}
    multiples: dict[str, Axis] = {}
    for name, spec in redeclared.items():
        if name in arguments:
            _match(arguments[name], spec, symbols, multiples)
    _name_rest(program, symbols)
    wanted = [state for state in states if state.path in redeclared]
    specs = [
        TensorSpec(
            argument.name,
            argument.dtype,
            tuple(multiples.get(axis.text) or substitute(axis, symbols) for axis in argument.axes),
        )
        for argument in program.arguments
    ] + specs_of([_of_state(state) for state in wanted], request)
    return Declared(
        specs,
        replace(
            request, dims=_ranges(program, symbols, _with_multiples(multiples, program, request))
        ),
        symbols,
        tuple(state.path for state in wanted),
    )


def _of_state(state: Stored) -> FileInput:
    return FileInput(state.path, state.form.dtype, state.form.sizes)


def _match(
    argument: Argument, spec: TensorSpec, symbols: dict[str, Axis], multiples: dict[str, Axis]
) -> None:
    """Take over what the request calls the axes of an input.

    multiples: of axes such as `8*s3` that are declared as a dim of their own, that dim.
    """
    field = f"inputs.{argument.name}"
    if spec.dtype != argument.dtype or len(spec.shape) != len(argument.axes):
        raise ImportFailed(
            f"input {argument.name!r} is {argument.dtype} with {len(argument.axes)} axes in the "
            f"program, declared as {spec.dtype} with {len(spec.shape)}",
            reason="input_rank" if spec.dtype == argument.dtype else "input_dtype",
            field=field,
        )
    for index, (have, want) in enumerate(zip(argument.axes, spec.shape, strict=True)):
        if have.symbol is not None:
            before = symbols.setdefault(have.symbol, want)
            if before.text != want.text:
                raise ImportFailed(
                    f"axis {index} of input {argument.name!r} is declared as {want.text}, and "
                    f"{before.text} elsewhere: the program has one size for both",
                    reason="input_shape",
                    field=field,
                    hint="give both axes one name",
                )
        elif want.symbol is not None and (parts := _multiple_of(have)) is not None:
            factor, symbol = parts
            if symbols.setdefault(symbol, Axis(f"{want.text}//{factor}")).text == (
                f"{want.text} // {factor}"
            ):
                multiples[have.text] = want
        elif have.size is not None and have.size != want.size:
            raise ImportFailed(
                f"axis {index} of input {argument.name!r} is {have.size} in the program, declared "
                f"as {want.text}",
                reason="input_shape",
                field=field,
                hint="export the program with a torch.export.Dim for that axis",
            )


def _multiple_of(axis: Axis) -> tuple[int, str] | None:
    """Factor and symbol of an axis such as `8*s3`."""
    match axis.tree:
        case ast.BinOp(
            left=ast.Constant(value=int(factor)), op=ast.Mult(), right=ast.Name(id=symbol)
        ) if factor > 1:
            return factor, symbol
    return None


def _with_multiples(
    multiples: Mapping[str, Axis], program: Program, request: CompileRequest
) -> CompileRequest:
    """The request with the dims that stand for multiples of torch's symbols, in the file's ranges
    and no other multiples.
    """
    dims = {dim.name: dim for dim in request.dims}
    for text, axis in multiples.items():
        name = axis.symbol
        factor, symbol = _multiple_of(Axis(text)) or (1, text)
        # The range of the symbol alone begins at 2, which torch takes for the least of any size.
        low, high = program.ranges.get(f"{factor}*{symbol}", (0, None))
        assert name is not None
        dim = dims.get(name, Dim(name))
        dims[name] = replace(
            dim,
            min=max(dim.min, low),
            max=min((size for size in (dim.max, high) if size is not None), default=None),
            multiple=math.lcm(dim.multiple, factor),
        )
    return replace(request, dims=tuple(sorted(dims.values())))


def _name_rest(program: Program, symbols: dict[str, Axis]) -> None:
    taken = {name for axis in symbols.values() for name in axis.dims}
    taken |= {
        name for argument in program.arguments for axis in argument.axes for name in axis.dims
    }
    for argument in program.arguments:
        for index, axis in enumerate(argument.axes):
            if axis.symbol is not None and axis.symbol not in symbols:
                name = f"{identifier(argument.name)}_{index}"
                while name in taken:
                    name += "_"
                taken.add(name)
                symbols[axis.symbol] = Axis.of_dim(name)
    for argument in program.arguments:
        for axis in argument.axes:
            for symbol in axis.dims:
                # Of a size that only occurs multiplied or added to, torch's name is the one it has.
                symbols.setdefault(symbol, Axis.of_dim(symbol))


def substitute(axis: Axis, symbols: Mapping[str, Axis]) -> Axis:
    """An axis of torch's symbols in named dims."""
    if not axis.dims:
        return axis
    if axis.symbol is not None:
        return symbols.get(axis.symbol, axis)
    tree = ast.parse(axis.text, mode="eval").body
    return Axis(ast.unparse(_Substitute(symbols).visit(tree)).replace("'", ""))


class _Substitute(ast.NodeTransformer):
    def __init__(self, symbols: Mapping[str, Axis]) -> None:
        self._symbols = symbols

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A symbol as what it is called."""
        axis = self._symbols.get(node.id)
        return node if axis is None else axis.tree

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """min and max of their arguments, whose names stay."""
        node.args = [self.visit(argument) for argument in node.args]
        return node


def _ranges(
    program: Program, symbols: Mapping[str, Axis], request: CompileRequest
) -> tuple[Dim, ...]:
    """The request's dims, each within the range that the program was exported for."""
    dims = {dim.name: dim for dim in request.dims}
    for symbol, axis in symbols.items():
        low, high = program.ranges.get(symbol, (0, None))
        name = axis.symbol
        if name is None:
            _check_fixed(axis, low, high)
            continue
        declared = dims.get(name)
        if declared is None:
            # torch's own least size is 0 wherever the user gave none.
            dims[name] = Dim(name, max(low, 1), high)
            continue
        least = max(declared.min, low)
        most = min((m for m in (declared.max, high) if m is not None), default=None)
        if most is not None and least > most:
            raise ImportFailed(
                f"the program was exported for sizes of {quote_name(name)} from {low} to "
                f"{'any' if high is None else high}, declared is {declared.describe()}",
                reason="dim_range",
                field=f"dims.{name}",
                hint=f"declare a range inside, as in --dim {option_name(name)}={low}:{high or ''}",
            )
        dims[name] = replace(declared, min=least, max=most)
    return tuple(sorted(dims.values()))


def _check_fixed(axis: Axis, low: int, high: int | None) -> None:
    size = axis.size
    if size is not None and not (low <= size and (high is None or size <= high)):
        raise ImportFailed(
            f"an axis is declared as {size}, the program was exported for sizes from {low} to "
            f"{'any' if high is None else high}",
            reason="dim_range",
        )
