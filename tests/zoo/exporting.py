"""Exports torch modules with either of torch's exporters, once for each content; the children run
`python -m tests.zoo.exporting`.
"""

import hashlib
import importlib
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.models import cache
from tests.zoo.case import Case, Exporter, Sizes

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).parents[2]
OPSET = 17
PACKAGES = ("torch", "transformers", "onnxscript", "onnx")
Axes = Mapping[str, Mapping[int, str]]


class ExportError(Exception):
    """Torch could not export the module; the message ends with what it said."""


@dataclass(frozen=True)
class Program:
    """A torch module with example arguments, one tensor for each name of `inputs`, in the order of
    its forward.

    axes: the named axes of inputs and, for outputs, of those whose names matter.
    """

    module: "torch.nn.Module"
    args: tuple["torch.Tensor", ...]
    inputs: Sequence[str]
    outputs: Sequence[str]
    axes: Axes


def both(
    name: str,
    make: Callable[[], Program],
    dims: Mapping[str, str],
    points: tuple[Sizes, ...],
    **declared: Any,
) -> tuple[Case, ...]:
    """The case of the program that `make`, a function of a module, returns, for each of torch's
    exporters.
    """
    exporters = (Exporter.TORCHSCRIPT, Exporter.DYNAMO)
    return tuple(
        Case(name, partial(exported, make, exporter), dims, points, exporter=exporter, **declared)
        for exporter in exporters
    )


def exported(make: Callable[[], Program], exporter: Exporter) -> Path:
    """The file, made on first use in a process of its own, so that torch stays out of this one;
    raises ExportError.
    """
    path = cache() / "zoo" / f"{make.__name__}-{exporter.value}-{_content(make)[:12]}.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.partial")
    command = [
        sys.executable,
        "-m",
        "tests.zoo.exporting",
        f"{make.__module__}:{make.__name__}",
        exporter.value,
        unfinished,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExportError(done.stderr.strip()[-3000:] or f"exit status {done.returncode}")
    unfinished.replace(path)
    return path


def export(program: Program, path: Path, exporter: Exporter) -> None:
    """Write the module as ONNX, the named axes symbolic and everything in one file; raises what
    torch raises.
    """
    import torch

    module, axes = (
        program.module.eval(),
        {name: dict(named) for name, named in program.axes.items()},
    )
    names: dict[str, Any] = {
        "input_names": list(program.inputs),
        "output_names": list(program.outputs),
    }
    with torch.no_grad():
        if exporter is Exporter.TORCHSCRIPT:
            torch.onnx.export(
                module,
                program.args,
                path,
                **names,
                dynamic_axes=axes,
                opset_version=OPSET,
                dynamo=False,
            )
        else:
            shapes = _nested(module.forward, [axes.get(name, {}) for name in program.inputs])
            torch.onnx.export(
                module,
                program.args,
                path,
                **names,
                dynamic_shapes=shapes,
                dynamo=True,
                external_data=False,
                verbose=False,
            )


def _nested(forward: Callable[..., Any], shapes: list[dict[int, str]]) -> tuple[Any, ...]:
    """A tuple's entries for `*arguments` stand in a tuple of their own."""
    kinds = [parameter.kind for parameter in inspect.signature(forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(shapes)
    place = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:place], tuple(shapes[place:]))


def _content(make: Callable[[], Program]) -> str:
    """A digest of what the file depends on: the sources that make it and the versions of the
    exporters.
    """
    digest = hashlib.sha256()
    for source in (inspect.getsourcefile(make), __file__):
        digest.update(Path(str(source)).read_bytes())
    digest.update("".join(version(package) for package in PACKAGES).encode())
    return digest.hexdigest()


def _main(named: str, exporter: str, path: str) -> None:
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module, _, function = named.partition(":")
    export(getattr(importlib.import_module(module), function)(), Path(path), Exporter(exporter))


if __name__ == "__main__":
    _main(*sys.argv[1:])
