"""The numbers of tensors of safetensors."""

from compiler.ir.decoders.quantized import Array
from compiler.ir.folder.safetensors import load_error
from relaxd.contract.weight_files import safetensors
from relaxd.contract.weight_files.errors import WeightFileError
from relaxd.contract.weight_files.safetensors import Stored, view_as

__all__ = ["as_float32", "view_as"]


def as_float32(name: str, stored: Stored) -> Array:
    """The numbers of a tensor; raises LoadError for those that are no floats of 16 or 32 bits."""
    try:
        return safetensors.as_float32(name, stored)
    except WeightFileError as error:
        raise load_error(error) from error
