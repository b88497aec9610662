"""Calls some of whose inputs stay where they are: checked once, and placed once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxd.loader.binding import Binding
from relaxd.loader.borrowed import Borrowed
from relaxd.loader.engine import Engine

Arrays = list[np.ndarray | Borrowed]


class Kept:
    """The inputs of a model that calls share, and the binding of those that each call is given.

    A language model has a cache of keys and one of values in each layer. To check them and to make
    tensors of them takes half of a millisecond a token where weights have driven Python's own
    memory out of the caches.
    """

    def __init__(
        self, names: Sequence[str], binding: Binding, engine: Engine, inputs: Mapping[str, Any]
    ) -> None:
        found, self.binding = binding.beside(inputs)
        self._engine = engine
        self._arrays = [found.get(name) for name in names]
        self._placed = [
            None if array is None else engine.place(position, array)
            for position, array in enumerate(self._arrays)
        ]
        self._open = [position for position, name in enumerate(names) if name not in found]

    def arrays(self, given: Arrays) -> list[Any]:
        """All inputs in the model's order, of those that a call was given."""
        return self._filled(self._arrays, given)

    def prepare(self, given: Arrays) -> list[Any]:
        """What the engine computes from; raises any error."""
        place = self._engine.place
        return self._filled(
            self._placed,
            [place(position, one) for position, one in zip(self._open, given, strict=True)],
        )

    def _filled(self, kept: list[Any], given: Sequence[Any]) -> list[Any]:
        every = kept.copy()
        for position, one in zip(self._open, given, strict=True):
            every[position] = one
        return every
