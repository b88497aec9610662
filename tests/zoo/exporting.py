"""Exports torch modules with either of torch's exporters, once for each content; the children run
`python -m tests.zoo.exporting KEY FILE CASES`.
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
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.models.known import cache
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


@dataclass(frozen=True)
class Export:
    """The file of the program that `make` returns, by one exporter.

    key: the case's. packages: those beside PACKAGES whose versions the file depends on. cases: the
    module whose CASES has the case by its key.
    """

    key: str
    make: Callable[[], Program]
    exporter: Exporter
    packages: tuple[str, ...] = ()
    cases: str = "tests.zoo.cases"

    def __call__(self) -> Path:
        """The file, made on first use in a process of its own, so that torch stays out of this one;
        raises ExportError.
        """
        path = cache() / "zoo" / f"{self.key}-{self.content()[:12]}.onnx"
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.partial")
        child = (sys.executable, "-m", "tests.zoo.exporting")
        command = [*child, self.key, str(unfinished), self.cases]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ExportError(done.stderr.strip()[-3000:] or f"exit status {done.returncode}")
        unfinished.replace(path)
        return path

    def content(self, *sources: Path) -> str:
        """A digest of what the file depends on: the sources that make it, further ones, what a
        bound `make` is of, and the versions of the exporters.
        """
        digest = hashlib.sha256(repr(getattr(self.make, "__self__", "")).encode())
        for source in (inspect.getsourcefile(self.make), __file__, *sources):
            digest.update(Path(str(source)).read_bytes())
        for package in (*PACKAGES, *self.packages):
            digest.update(version(package).encode())
        return digest.hexdigest()


def both(
    name: str,
    make: Callable[[], Program],
    dims: Mapping[str, str],
    points: tuple[Sizes, ...],
    exporters: Sequence[Exporter] = (Exporter.TORCHSCRIPT, Exporter.DYNAMO),
    packages: tuple[str, ...] = (),
    **declared: Any,
) -> tuple[Case, ...]:
    """The case of the program for each of torch's exporters."""
    exports = (Export(f"{name}-{each.value}", make, each, packages) for each in exporters)
    return tuple(
        Case(name, export, dims, points, exporter=export.exporter, **declared) for export in exports
    )


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
            shapes = nest_shapes(module.forward, [axes.get(name, {}) for name in program.inputs])
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


def nest_shapes(forward: Callable[..., Any], shapes: list[dict[int, Any]]) -> tuple[Any, ...]:
    """The shapes of a call's arguments, in which those of `*arguments` are a tuple of their own."""
    kinds = [parameter.kind for parameter in inspect.signature(forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(shapes)
    position = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*shapes[:position], tuple(shapes[position:]))


def _main(key: str, path: str, cases: str) -> None:
    import torch

    from tests.zoo.weights import import_hubs

    warnings.simplefilter("ignore")
    import_hubs()
    torch.manual_seed(0)
    case: Any = importlib.import_module(cases).CASES[key]
    export(case.export.make(), Path(path), case.exporter)


if __name__ == "__main__":
    _main(*sys.argv[1:])
