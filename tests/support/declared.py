"""Declarations as the command line spells them: `n=1:64`, `x=float32[n,3]`."""

from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec


def dim(text: str) -> Dim:
    name, _, value = text.partition("=")
    return Dim.of(name, value)


def spec(text: str) -> TensorSpec:
    name, _, value = text.partition("=")
    return TensorSpec.of(name, value)
