"""Calls some of whose inputs stay where they are: checked once, and placed once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxd.loader.engines.engine import Engine
from relaxd.loader.tensors.binding import Binding
from relaxd.loader.tensors.borrowed import Borrowed

Arrays = list[np.ndarray | Borrowed]


class BoundInputs:
    """The inputs of a model that calls share, and the binding of those that each call is given.

    A language model has a cache of keys and one of values in each layer. To check them and to make
    tensors of them takes half of a millisecond a token where weights have driven Python's own
    memory out of the caches.

    prepare: what the engine computes from, of the arrays that a call is given; raises any error.
    """

    def __init__(
        self, names: Sequence[str], binding: Binding, engine: Engine, inputs: Mapping[str, Any]
    ) -> None:
        arrays, self.binding = binding.beside(inputs)
        self._arrays = [arrays.get(name) for name in names]
        self.prepare = engine.keep(self._arrays)

    def arrays(self, rest: Arrays) -> Arrays:
        """All inputs in the model's order, of those that a call was given."""
        others = iter(rest)
        return [next(others) if array is None else array for array in self._arrays]
