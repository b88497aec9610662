"""torch's side of programs, in a process of its own: `python -m tests.zoo.saving KEY FOLDER` writes
`model.pt2`, `feeds.npz` (`POINT.NAME`) and the module's own `outputs.npz` (`POINT.POSITION`).
"""

import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relaxd.cli.declarations import read_request
from relaxd.contract.dims.dims import Dim
from relaxd.torch.exporting import export_module
from relaxd.torch.target import load_target
from tests.zoo.case import Case, Exporter, Feed, Sizes
from tests.zoo.cases import CASES
from tests.zoo.exporting import Program, nest_shapes
from tests.zoo.programs import Saved
from tests.zoo.weights import import_hubs


def write(case: Case, folder: Path) -> None:
    """Save the program last, so that a folder with it is whole."""
    assert isinstance(case.export, Saved)
    import_hubs()
    torch.manual_seed(0)
    program = _within(case, case.export.source.make())
    program.module.eval()
    feeds = [feed_of(case, program, point, seed) for seed, point in enumerate(case.points)]
    with torch.no_grad():
        _write_points(folder / "outputs.npz", [_run(program, feed) for feed in feeds])
        _write_points(folder / "feeds.npz", feeds)
        save = _save_by_name if case.exporter is Exporter.RELAXD else _save_by_torch
        save(case, program, folder / "model.pt2")


def _within(case: Case, program: Program) -> Program:
    """The program with those named axes that are dims of the case."""
    axes = {
        name: {axis: dim for axis, dim in named.items() if dim in case.dims}
        for name, named in program.axes.items()
    }
    return replace(program, axes=axes)


def _save_by_torch(case: Case, program: Program, path: Path) -> None:
    dims = {name: _dim_of(name, text) for name, text in case.dims.items()}
    shapes = [
        {axis: dims[dim] for axis, dim in program.axes.get(name, {}).items()}
        for name in program.inputs
    ]
    exported = torch.export.export(
        program.module, program.args, dynamic_shapes=nest_shapes(program.module.forward, shapes)
    )
    torch.export.save(exported, path)


def _dim_of(name: str, text: str) -> Any:
    dim = Dim.of(name, text)
    low, high, factor = dim.lowest, dim.highest, dim.multiple
    assert high is not None
    if factor == 1:
        return torch.export.Dim(name, min=low, max=high)
    # torch declares a multiple by what is multiplied.
    return factor * torch.export.Dim(f"{name}_parts", min=low // factor, max=high // factor)


def _save_by_name(case: Case, program: Program, path: Path) -> None:
    module, example = load_target(f"tests.zoo.programs:{case.name}")
    names = _argument_names(module, len(program.inputs))
    inputs = []
    for name, own, tensor in zip(program.inputs, names, program.args, strict=True):
        named = program.axes.get(name, {})
        axes = ",".join(named.get(axis, str(size)) for axis, size in enumerate(tensor.shape))
        inputs.append(f"{own}={_dtype(tensor)}[{axes}]")
    dims = [f"{name}={text}" for name, text in case.dims.items()]
    exported = export_module(module, example, read_request(dims=dims, inputs=inputs), path)
    if exported.form.value != "program":
        path.unlink()
        raise SystemExit(f"saved as {exported.form.value}: {'; '.join(exported.losses)}")


def _argument_names(module: torch.nn.Module, count: int) -> list[str]:
    """torch's names of the tensors of a call."""
    names: list[str] = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{index}" for index in range(count - len(names))]
        else:
            names.append(parameter.name)
    return names[:count]


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def feed_of(case: Case, program: Program, point: Sizes, seed: int) -> Feed:
    """Every input at one point, as `tests.zoo.case.feed_of` draws them."""
    generator = np.random.default_rng(seed)
    special = case.feeds(point, generator)
    feed: Feed = {}
    for name, tensor in zip(program.inputs, program.args, strict=True):
        named = program.axes.get(name, {})
        shape = [point[named[axis]] if axis in named else n for axis, n in enumerate(tensor.shape)]
        if name in special:
            created = special[name]
        elif tensor.is_floating_point():
            created = generator.standard_normal(shape)
        else:
            created = generator.integers(0, case.draw.get(name, 2), shape)
        feed[name] = created.astype(_dtype(tensor))
    return feed


def _run(program: Program, feed: Mapping[str, Any]) -> Feed:
    result = program.module(*(torch.from_numpy(feed[name]) for name in program.inputs))
    leaves = torch.utils._pytree.tree_leaves(result)
    return {str(position): leaf.numpy() for position, leaf in enumerate(leaves)}


def _write_points(path: Path, points: Sequence[Mapping[str, Any]]) -> None:
    arrays: dict[str, Any] = {
        f"{index}.{name}": array
        for index, point in enumerate(points)
        for name, array in point.items()
    }
    np.savez(path, **arrays)


def _main(key: str, folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    try:
        write(CASES[key], folder)
    except Exception as error:
        # torch's messages begin with what is wrong, and end with advice.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reasons = [line for line in lines if line.startswith("- ")]
        sys.exit(" ".join([f"{type(error).__name__}:", *lines[:1], *reasons[:1]]))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
