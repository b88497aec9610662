"""What an import yields: a Relax module and everything the manifest and verify need to
know of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm

from relaxd.contract.dims import Dim
from relaxd.contract.tensors import TensorSpec


@dataclass(frozen=True)
class Imported:
    """`module.main` takes `inputs` in order and returns a relax.Tuple of `outputs`.

    dims: of the inputs, then those found on the way (`derived`), whose values only a run knows.
    index_bounds: for inputs that index something, least and greatest index valid at every allowed
    dim.
    quantized: whether it works on integers of few bits that stand for reals.
    """

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    derived: frozenset[str] = frozenset()
    index_bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    quantized: bool = False
