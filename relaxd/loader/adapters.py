"""Low-rank adapters of a loaded language model, in the buffers that its calls read."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxd.errors import AdapterError
from relaxd.loader.machine.large_pages import zeros_by_small_pages

if TYPE_CHECKING:
    from relaxd.contract.bundle.adapters import Module
    from relaxd.loader.model import Model

Key = tuple[int, str]
"""The layer and the name of a matmul, such as `q_proj`."""
Matrices = tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]
"""float32 [columns of x, rank] and [rank, columns]: x is multiplied by their product."""


class AdapterStacks:
    """The slots of up to `count` adapters, which states of the model share: numbers from 1 on.

    Memory is taken as adapters are written. Nothing may compute with an adapter while it is
    written or cleared.
    """

    def __init__(self, model: "Model", count: int) -> None:
        described = model.manifest.adapters
        if described is None:
            raise AdapterError(
                f"{model.manifest.name} takes no adapters",
                hint="compile it with the option `lora_rank`, such as lora_rank=16",
                reason="none",
            )
        self.described = described
        self.count = count
        specs = {spec.name: spec for spec in model.inputs}
        self._check_count(model, specs[described.modules[0].down].shape[0].symbol)
        self._ranks = np.zeros((count, len(described.modules)), np.int32)
        self.inputs = {described.ranks: self._ranks} | {
            name: _zeros([count, *(axis.evaluate({}) for axis in specs[name].shape[1:])])
            for name in described.inputs
        }
        self._numbers = {
            (module.layer, module.name): i for i, module in enumerate(described.modules)
        }
        self.modules: dict[Key, Module] = {
            (module.layer, module.name): module for module in described.modules
        }

    def write(self, number: int, matrices: Mapping[Key, Matrices]) -> None:
        """Put an adapter in a slot, whatever was there. Raises AdapterError for matmuls that have
        no adapters here, for sizes that are not those of the model, and for a rank that is too
        great; then nothing changes.
        """
        for key, pair in matrices.items():
            self._check(key, pair)
        self.clear(number)
        for key, (down, up) in matrices.items():
            module, rank = self.modules[key], up.shape[0]
            self.inputs[module.down][number - 1, :rank] = down.T
            self.inputs[module.up][number - 1, :rank] = up / np.float32(module.scale)
            self._ranks[number - 1, self._numbers[key]] = rank

    def clear(self, number: int) -> None:
        """Make a slot add nothing."""
        self._ranks[number - 1] = 0

    def _check_count(self, model: "Model", symbol: str | None) -> None:
        dim = next((dim for dim in model.dims if dim.name == symbol), None)
        if dim is not None and not dim.admits(self.count):
            raise AdapterError(
                f"there cannot be {self.count} adapters: {dim.name} must be {dim.describe()}",
                hint="ask for as many as the bundle admits, or compile it with another range",
                reason="count",
            )

    def _check(self, key: Key, pair: Matrices) -> None:
        layer, name = key
        spoken = f"{name} of layer {layer}"
        module = self.modules.get(key)
        if module is None:
            known = ", ".join(sorted({name for _, name in self.modules}))
            raise AdapterError(
                f"the adapter changes {spoken}, which has no adapters in this bundle",
                hint=f"it has for {known} of {1 + max(i for i, _ in self.modules)} layers; compile "
                "it with others in lora_targets, or give an adapter of this model",
                reason="targets",
            )
        down, up = pair
        depth, width = self.inputs[module.down].shape[2], self.inputs[module.up].shape[2]
        rank, most = up.shape[0], self.described.rank
        if down.shape != (depth, rank) or up.shape != (rank, width):
            raise AdapterError(
                f"the adapter is of another model: it has {list(down.shape)} and {list(up.shape)} "
                f"for {spoken}, where [{depth}, rank] and [rank, {width}] belong",
                hint="give the bundle of the model that it was trained with",
                reason="base",
            )
        if rank > most:
            raise AdapterError(
                f"the adapter has the rank {rank} for {spoken}, the bundle takes up to {most}",
                hint=f"compile it with lora_rank={-(-rank // 8) * 8}",
                reason="rank",
            )


def _zeros(shape: list[int]) -> np.ndarray:
    return zeros_by_small_pages(math.prod(shape) * 4).view(np.float32).reshape(shape)
