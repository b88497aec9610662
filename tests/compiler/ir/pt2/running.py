"""Exports modules, compiles the `.pt2` files in this process, and compares with torch."""

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from compiler.ir.imported import Imported
from compiler.ir.pt2.program import Program, read_program
from compiler.ir.pt2.reader import read
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.torchscript.running import Machine, Spec, agree, draw

SIZES = (3, 2, 7, 13)
"""Never 1: torch.export takes an axis of 1 for a fixed one."""


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def export(
    module: Any, inputs: tuple[Any, ...], shapes: Any = None, decompose: bool = False, **kwargs: Any
) -> Any:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), inputs, dynamic_shapes=shapes, **kwargs)
        return program.run_decompositions() if decompose else program


def save(program: Any, path: Path | None = None) -> Path:
    """A file that the caller may delete: the program is read before."""
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="relaxd-pt2-")) / "m.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, path)
    return path


def read_saved(program: Any) -> Program:
    path = save(program)
    try:
        return read_program(path)
    finally:
        path.unlink()
        path.parent.rmdir()


def import_program(program: Any, **declared: Any) -> Imported:
    return read(read_saved(program), CompileRequest.of(**declared))


def check(
    module: Any,
    *specs: Spec,
    sizes: Sequence[int] = SIZES,
    forms: Sequence[bool] = (False, True),
    **declared: Any,
) -> list[Imported]:
    """Export with every axis `n` dynamic, as it is and decomposed; compare at every size."""
    module = module if isinstance(module, torch.nn.Module) else Function(module)
    values = tuple(draw(spec, 3) for spec in specs)
    dim = torch.export.Dim("n", min=2, max=64)
    axes = [
        {index: dim for index, axis in enumerate(spec[1].split(",")) if axis == "n"}
        for spec in specs
    ]
    shapes: Any = (tuple(axes),) if isinstance(module, Function) else tuple(axes)
    results = []
    for decompose in forms:
        machine = Machine(import_program(export(module, values, shapes, decompose), **declared))
        names = [spec.name for spec in machine.imported.inputs]
        for size in sizes if any(axes) else (3,):
            values = tuple(draw(spec, size) for spec in specs)
            feeds = {n: v.numpy() for n, v in zip(names, values, strict=True)}
            with torch.no_grad():
                wanted = module(*(value.clone() for value in values))
            agree(list(machine(**feeds).values()), wanted)
        results.append(machine.imported)
    return results
