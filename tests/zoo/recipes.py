"""Models of packages by their names, at a small size: a class of transformers or torchaudio, or a
function of timm, torchvision or torchaudio.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tests.zoo.case import Case, Exporter, Sizes, nothing
from tests.zoo.exporting import Program, both
from tests.zoo.packaged import masked_rows

if TYPE_CHECKING:
    from torch import Tensor, nn

WORDS = 97
BOTH = frozenset(("convnextv2", "deberta_v2", "swin"))
"""Models that torch's newer exporter was seen to export, too; it takes a minute on most."""
DYNAMO = frozenset(("fnet",))
"""Models that the older exporter fails on."""


@dataclass(frozen=True)
class Recipe:
    """A model and how it is called.

    model: a class of transformers with a config, or a function. size: arguments of the config or of
    the function. inputs: as a compile request declares them. example: the dims that an export runs
    at. outputs: attributes of the result; none where it is a tensor, or a tuple of them. fixed:
    further arguments of every call. below: the exclusive upper bounds of integers other than words.
    """

    model: str
    size: Mapping[str, Any]
    inputs: Mapping[str, str]
    example: Mapping[str, int]
    outputs: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    package: str = "transformers"

    def program(self) -> Program:
        """The module, with weights that keep signals at their size, and its example."""
        from tests.zoo.weights import keep_signals
        from tests.zoo.wrapping import Positional

        names = tuple(self.inputs)
        module = Positional(self._model(), names, self.outputs, self.fixed)
        args = tuple(self._example(name) for name in names)
        keep_signals(module, args)
        outputs = self.outputs or tuple(f"output_{n}" for n in range(len(module(*args))))
        return Program(module, args, names, outputs, {n: self._named(n) for n in names})

    def _model(self) -> "nn.Module":
        from tests.zoo.weights import import_hubs

        import_hubs()
        position = "torchvision.models" if self.package == "torchvision" else self.package
        created = attrgetter(self.model)(importlib.import_module(position))
        config = getattr(created, "config_class", None)
        built = created(config(**self.size)) if config else created(**self.size)
        return built.eval()

    def _example(self, name: str) -> "Tensor":
        import torch

        dtype, axes = split(self.inputs[name])
        shape = [self.example[axis] if axis in self.example else int(axis) for axis in axes]
        if dtype == "float32":
            return torch.randn(shape)
        low = 1 if name.endswith("mask") else 0
        return torch.randint(low, self.below.get(name, WORDS) if not low else 2, shape)

    def _named(self, name: str) -> dict[int, str]:
        axes = split(self.inputs[name])[1]
        return {position: axis for position, axis in enumerate(axes) if axis in self.example}


def _exporters(name: str) -> tuple[Exporter, ...]:
    older = () if name in DYNAMO else (Exporter.TORCHSCRIPT,)
    return (*older, Exporter.DYNAMO) if name in BOTH | DYNAMO else older


def split(declared: str) -> tuple[str, tuple[str, ...]]:
    """`int64[batch,seq]`: the dtype, and the axes."""
    dtype, _, axes = declared.rstrip("]").partition("[")
    return dtype, tuple(axes.split(","))


def cases(
    name: str, recipe: Recipe, dims: Mapping[str, str], points: tuple[Sizes, ...], **declared: Any
) -> tuple[Case, ...]:
    """The recipe's case for each exporter that copes with it; `declared` as in `both`."""
    words = {name: WORDS for name, text in recipe.inputs.items() if split(text)[0] == "int64"}
    masked = recipe.inputs.get("attention_mask") == "int64[batch,seq]"
    declared = {"feeds": masked_rows if masked else nothing} | declared
    others = () if recipe.package == "transformers" else (recipe.package,)
    return both(
        name,
        recipe.program,
        dims,
        points,
        exporters=_exporters(name),
        packages=others,
        needs=recipe.package,
        draw={**words, **recipe.below},
        **declared,
    )
