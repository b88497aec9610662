"""What an import yields: a Relax module and everything the manifest, the passes and verify need to
know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from relaxd.contract.dims import Dim
from relaxd.contract.tensors import TensorSpec

if TYPE_CHECKING:
    import tvm
    from tvm import tirx

Ranges: TypeAlias = "Mapping[tirx.Var, Dim]"
"""Dims that may take more than one value, by the variable that stands for them in `main`."""


@dataclass(frozen=True)
class Imported:
    """`module.main` takes `inputs` in order and returns a relax.Tuple of `outputs`.

    dims: of the inputs, then those found on the way, whose values only a run knows.
    ranges: the same dims by variable, as analyses and passes look them up.
    index_bounds: for inputs that index something, least and greatest index valid at every allowed
    dim.
    quantized: whether it works on integers of few bits that stand for reals.
    """

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    ranges: Ranges
    index_bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    quantized: bool = False
