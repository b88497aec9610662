"""A call as a saved program: traced, scripted, or exported."""

import io
import itertools
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.opinfo.entries import Entry, Position, Sample, operator_of

AXIS = "n"
"""What the dim is called."""
_numbers = itertools.count()


class NoProgramError(Exception):
    """torch itself makes no program of the call."""


class _Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def trace(entry: Entry, sample: Sample) -> torch.jit.ScriptModule:
    """The call traced at the sample's sizes; raises NoProgramError."""
    if not sample.tensors:
        raise NoProgramError("a trace needs a tensor")
    return _ask_torch(
        lambda: torch.jit.trace(_Call(sample.function), sample.tensors, check_trace=False)
    )


def script(entry: Entry, sample: Sample) -> torch.jit.ScriptModule:
    """The call as TorchScript's source; raises NoProgramError where it is no function of torch's or
    torch does not take it.
    """
    args, kwargs = sample.arguments
    words = [_literal(item) for item in args]
    words += [f"{name}={_literal(item)}" for name, item in kwargs.items()]
    tensors = "".join(f", x{index}: Tensor" for index in range(len(sample.tensors)))
    name = _name(entry)
    called = f"{name}({', '.join(words)})"
    if name.startswith("."):
        called = f"{words[0]}{name}({', '.join(words[1:])})"
    source = f"def forward(self{tensors}):\n    return {called}\n"

    def define() -> torch.jit.ScriptModule:
        # torch names what it compiles by the class, and takes each name once.
        module = type(f"Call{next(_numbers)}", (torch.jit.ScriptModule,), {})()
        module.define(source)
        return module

    return _ask_torch(define)


def _ask_torch(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return make()
        except Exception as error:
            raise NoProgramError(f"{type(error).__name__}: {error}") from error


def _name(entry: Entry) -> str:
    """The operator as a script writes it; a method begins with a dot."""
    operator = operator_of(entry)
    name = str(getattr(operator, "__name__", ""))
    for space in ("torch", "torch.nn.functional", "torch.special"):
        holder = (
            torch.nn.functional
            if space.endswith("functional")
            else (torch.special if space.endswith("special") else torch)
        )
        if getattr(holder, name, None) is operator:
            return f"{space}.{name}"
    if getattr(torch.Tensor, name, None) is operator and not name.startswith("__"):
        return f".{name}"
    raise NoProgramError("no function of torch's by name")


def _literal(item: Any) -> str:
    if isinstance(item, Position):
        return f"x{item.index}"
    if isinstance(item, (list, tuple)):
        inner = ", ".join(map(_literal, item))
        return f"[{inner}]"
    if isinstance(item, float) and not math.isfinite(item):
        return f'float("{item}")'
    if item is None or isinstance(item, (bool, int, float, str)):
        return repr(item)
    if isinstance(item, (torch.dtype, torch.memory_format)):
        return str(item)
    raise NoProgramError(f"an argument is a {type(item).__name__}")


def save(module: torch.jit.ScriptModule) -> bytes:
    """The module's file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(module, buffer)
    return buffer.getvalue()


def export(sample: Sample, axes: Sequence[set[int]] | None) -> bytes:
    """The call's `.pt2` with the dim `n` on those axes; raises NoProgramError."""
    dim = torch.export.Dim(AXIS, min=2)
    shapes: Any = None
    if axes is not None:
        shapes = (tuple(dict.fromkeys(mine, dim) for mine in axes),)

    def make() -> bytes:
        program = torch.export.export(
            _Call(sample.function), sample.tensors, dynamic_shapes=shapes, strict=False
        )
        with tempfile.TemporaryDirectory(prefix="opinfo-") as folder:
            path = Path(folder) / "m.pt2"
            torch.export.save(program, path)
            return path.read_bytes()

    result = _ask_torch(make)
    assert isinstance(result, bytes)
    return result
