"""Files of safetensors as parts of a model."""

from collections.abc import Mapping

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array
from relaxd.contract.weight_files import safetensors
from relaxd.contract.weight_files.errors import WeightFileError
from relaxd.contract.weight_files.safetensors import Stored


def read_safetensors(name: str, data: Array) -> Mapping[str, Stored]:
    """The tensors of the file, in its memory; raises LoadError."""
    try:
        return safetensors.read_safetensors(name, data)
    except WeightFileError as error:
        raise load_error(error) from error


def load_error(error: WeightFileError) -> LoadError:
    """The error of a model one of whose files is at fault."""
    return LoadError(error.message, reason=error.reason, field="model", hint=error.hint)
