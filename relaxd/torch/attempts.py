"""The ways to export a module, in the order in which they are tried: torch.export, which keeps
ranges and guards, then TorchScript.
"""

import ast
import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from relaxd.contract.dims.axes import Axis
from relaxd.errors import DeclarationError
from relaxd.torch.errors import load_torch
from relaxd.torch.inputs import Inputs, Sizes
from relaxd.torch.recurrent import has_recurrent, keep_recurrent, restore_operators


class Form(StrEnum):
    """The content of the file."""

    PROGRAM = "program"
    SCRIPT = "script"
    TRACE = "trace"


@dataclass(frozen=True)
class Candidate:
    """An export that is still to be checked: what runs it, what saves it with a document beside
    it, and what was lost or done on the way.
    """

    run: Callable[..., Any]
    save: Callable[[Path, str], None]
    notes: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """One way; `name` says it to people."""

    name: str
    form: Form
    make: Callable[[Inputs, Sizes], Candidate]


def attempts_for(inputs: Inputs) -> Iterator[Attempt]:
    """All ways that may work."""
    yield Attempt("torch.export", Form.PROGRAM, _exporting(strict=False, multiples=False))
    if any(dim.multiple > 1 for dim in inputs.dims.values()):
        yield Attempt(
            "torch.export with multiples", Form.PROGRAM, _exporting(strict=False, multiples=True)
        )
    yield Attempt(
        "torch.export(strict=True)", Form.PROGRAM, _exporting(strict=True, multiples=True)
    )
    yield Attempt("torch.jit.script", Form.SCRIPT, _script)
    yield Attempt("torch.jit.trace", Form.TRACE, _trace)


def _exporting(*, strict: bool, multiples: bool) -> Callable[[Inputs, Sizes], Candidate]:
    def make(inputs: Inputs, sizes: Sizes) -> Candidate:
        torch = load_torch()
        symbols = _symbols(inputs, sizes, multiples=multiples)
        args, kwargs = inputs.call(sizes)
        recurrent = has_recurrent(inputs.module)
        with keep_recurrent() if recurrent else contextlib.nullcontext():
            program = torch.export.export(
                inputs.module,
                args,
                kwargs,
                dynamic_shapes=inputs.shapes(lambda axis: _size_of(axis, symbols)),
                strict=strict,
            )
        restore_operators(program)
        note = "LSTM, GRU and RNN layers are kept as operators of any length"

        def save(path: Path, document: str) -> None:
            torch.export.save(program, path, extra_files={DOCUMENT: document})

        return Candidate(program.module(), save, (note,) if recurrent else ())

    return make


DOCUMENT = "relaxd.json"
"""The part of the archive that has the names of dims, which torch does not write."""


def _symbols(inputs: Inputs, sizes: Sizes, *, multiples: bool) -> dict[str, Any]:
    """torch's size for each dim: plain, or a multiple of a smaller one."""
    torch = load_torch()
    symbols: dict[str, Any] = {}
    for index, dim in enumerate(inputs.dims.values()):
        step = dim.multiple if multiples else 1
        if dim.fixed:
            symbols[dim.name] = sizes[dim.name]
            continue
        high = None if dim.highest is None else dim.highest // step
        small = torch.export.Dim(f"relaxd_dim{index}", min=-(-dim.min // step), max=high)
        symbols[dim.name] = small if step == 1 else step * small
    return symbols


def _size_of(axis: Axis, symbols: dict[str, Any]) -> Any:
    """The axis in torch's sizes, which it lets multiply and add with numbers alone."""

    def read(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return symbols[name]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return read(left) + read(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return read(left) - read(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                one, other = read(left), read(right)
                return one * other if isinstance(one, int) else other * one
        raise NotImplementedError

    try:
        return read(axis.tree)
    except (NotImplementedError, TypeError) as error:
        raise DeclarationError(
            f"torch.export takes no axis {axis.text!r}",
            field="inputs",
            hint="an axis is a dim, or whole numbers times and plus one dim, as 2*seq or seq+1",
        ) from error


def _script(inputs: Inputs, sizes: Sizes) -> Candidate:
    torch = load_torch()
    script = torch.jit.script(inputs.module)
    loss = (
        "TorchScript keeps neither ranges nor guards on sizes: only the ranges that you declared "
        "are checked"
    )
    return Candidate(script, _saving(script), losses=(loss,))


def _trace(inputs: Inputs, sizes: Sizes) -> Candidate:
    torch = load_torch()
    args, kwargs = inputs.call(sizes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if kwargs:
            trace = torch.jit.trace(
                inputs.module, example_kwarg_inputs=kwargs, check_trace=False, strict=False
            )
        else:
            trace = torch.jit.trace(inputs.module, args, check_trace=False, strict=False)
    losses = [
        "TorchScript by tracing: branches and loops are fixed as the example took them, and sizes "
        "that Python computed outside of tensors too"
    ]
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning):
            what = str(warning.message).partition(". ")[0]
            losses.append(f"{warning.filename}:{warning.lineno}: {what}"[:300])
    return Candidate(trace, _saving(trace), losses=tuple(dict.fromkeys(losses)))


def _saving(script: Any) -> Callable[[Path, str], None]:
    def save(path: Path, document: str) -> None:
        load_torch().jit.save(script, str(path), _extra_files={DOCUMENT: document})

    return save


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """torch without its warnings, logs and printed graphs, without gradients, and without the fused
    kernel of its attention layers, which cannot be exported.
    """
    torch = load_torch()
    fused, level = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            torch.no_grad(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        torch.backends.mha.set_fastpath_enabled(fused)
