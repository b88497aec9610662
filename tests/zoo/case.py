"""A case of the zoo: one file, what a compile request declares about it, the sizes it runs at,
and its inputs there.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from numpy.typing import NDArray

SPREAD = 0.2
"""The deviation of random weights in layers of some 32 inputs, so that signals keep their size.
transformers' own 0.02 makes each layer's part so small that a fault of it would not be seen.
"""

Feed = dict[str, NDArray[Any]]
Sizes = Mapping[str, int]


class Exporter(Enum):
    """The origin of a case's file; a packaged one came with an installed package, PT2 and RELAXD
    are programs of `torch.export.save` and of `relaxd export MODULE:FUNCTION`.
    """

    PACKAGED = "packaged"
    TORCHSCRIPT = "torchscript"
    DYNAMO = "dynamo"
    PT2 = "pt2"
    RELAXD = "relaxd"

    @property
    def writes_programs(self) -> bool:
        """True if files are `.pt2`, which have their dims in them."""
        return self in (Exporter.PT2, Exporter.RELAXD)


def nothing(sizes: Sizes, generator: Generator) -> Feed:
    """No input of its own: every one is drawn by its dtype."""
    return {}


def sizes(names: str, *rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    """`sizes("batch seq", (1, 1), (3, 7))`: a mapping for each row."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


@dataclass(frozen=True)
class Case:
    """One model, as one exporter made it.

    export: finds or makes the file; raises ExportError where torch itself fails.
    dims, inputs, consts, shapes, options: what the compile request declares.
    points: five sets of dim values, both ends of every range among them.
    feeds: the inputs that are not simply random, at some sizes.
    draw: the exclusive upper bound of the integers drawn for an input; others are 0 or 1.
    rounds: whether it quantizes activations, which makes steps of small differences.
    needs: the package without which there is no file; none where the environment has all of them.
    target: what the library is for, which this machine runs; or a geometry of
    `tests.support.geometries`.
    """

    name: str
    export: Callable[[], Path]
    dims: Mapping[str, str]
    points: tuple[Sizes, ...]
    feeds: Callable[[Sizes, Generator], Feed] = nothing
    exporter: Exporter = Exporter.PACKAGED
    draw: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    consts: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=lambda: {"verify": False, "profile": False})
    rounds: bool = False
    needs: str = ""
    target: str = "native"

    @property
    def key(self) -> str:
        """The name and, where torch exported the file, the exporter: `vit-dynamo`."""
        return key_of(self.name, self.exporter)

    @property
    def installed(self) -> bool:
        """True if the package that the case needs is there."""
        return not self.needs or find_spec(self.needs) is not None

    def build(self, flavour: str | None, target: str) -> "Case":
        """The same, with a library of that backend, or the target's own, for that target."""
        options = {**self.options, "flavour": flavour} if flavour else self.options
        return dataclasses.replace(self, options=options, target=target)

    def request(self) -> dict[str, Any]:
        """Keyword arguments of `compiler.compile_model`."""
        if self.exporter.writes_programs:
            return {"target": self.target, "options": dict(self.options)}
        declared = ("dims", "inputs", "consts", "shapes", "options")
        return {"target": self.target} | {name: dict(getattr(self, name)) for name in declared}


def key_of(name: str, exporter: Exporter) -> str:
    """The key of a case."""
    return name if exporter is Exporter.PACKAGED else f"{name}-{exporter.value}"


def feed_of(case: Case, path: Path, point: Sizes, seed: int = 0) -> Feed:
    """Every input of the file at `path`: floats standard normal, integers below what they index,
    constants as declared.
    """
    generator = np.random.default_rng(seed)
    graph = onnx.load(path, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    special = case.feeds(point, generator)
    feed: Feed = {}
    for value in graph.input:
        if value.name in stored:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name in case.consts:
            feed[value.name] = np.asarray(case.consts[value.name], dtype)
        elif value.name in special:
            feed[value.name] = special[value.name].astype(dtype)
        else:
            feed[value.name] = _random(
                dtype, _shape(case, value, point), case.draw.get(value.name, 2), generator
            )
    return feed


def _random(
    dtype: np.dtype[Any], shape: list[int], below: int, generator: Generator
) -> NDArray[Any]:
    if dtype.kind in "iub":
        return generator.integers(0, below, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def _shape(case: Case, value: Any, point: Sizes) -> list[int]:
    if value.name in case.inputs:
        axes = case.inputs[value.name].partition("[")[2].rstrip("]").split(",")
    else:
        axes = [axis.dim_param or str(axis.dim_value) for axis in value.type.tensor_type.shape.dim]
    return [point[axis] if axis in point else int(axis) for axis in axes]
