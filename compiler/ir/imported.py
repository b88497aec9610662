"""The result of an import: a Relax module and what the passes, the manifest and verification need
to know about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from compiler.ir.caches import CacheUse
from compiler.ir.shapes.index_bounds import Limits
from relaxd.contract.bundle.state import State
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec

if TYPE_CHECKING:
    import tvm
    from tvm import tirx

Ranges: TypeAlias = "Mapping[tirx.Var, Dim]"
"""Dims that may take more than one value, by the variable that represents them in `main`."""


@dataclass(frozen=True)
class CallerState:
    """The state of a library with in-place KV caches, and the signature of its model.

    past: the dim that counts the rows of the model's caches.
    """

    state: State
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    past: Dim
    uses: tuple[CacheUse, ...]


@dataclass(frozen=True)
class Imported:
    """`module.main` takes `inputs` in order and returns a relax.Tuple of `outputs`.

    dims: the dims of the inputs, then those that the import introduced, whose values are known only
    at run time.
    ranges: the same dims by variable, for analyses and passes.
    index_bounds: for inputs that index, count or bound something, which values are legal.
    nodes: names of the model's nodes, by the positions after which variables are called.
    quantized: the model computes with small integers that represent reals.
    stacks: a loop stacks what its iterations give. The specification leaves open the extents of a
    stack of none: ONNX Runtime has 0 for those that are dims.
    caches: how attention uses its caches, and which inputs state how far they are filled.
    in_place: the KV caches that are buffers of the caller.
    """

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    ranges: Ranges
    index_bounds: Limits = field(default_factory=dict)
    quantized: bool = False
    caches: tuple[CacheUse, ...] = ()
    nodes: tuple[str, ...] = ()
    in_place: CallerState | None = None
    stacks: bool = False
