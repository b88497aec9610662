"""GGUF files as models."""

from pathlib import Path

from compiler.errors import LoadError
from relaxd.contract.weight_files import gguf
from relaxd.contract.weight_files.errors import WeightFileError
from relaxd.contract.weight_files.gguf import Gguf, Stored, is_gguf

__all__ = ["Gguf", "Stored", "is_gguf", "read_gguf"]


def read_gguf(path: Path) -> Gguf:
    """The file's contents, tensors mapped into memory; raises LoadError."""
    try:
        return gguf.read_gguf(path)
    except WeightFileError as error:
        raise LoadError(
            error.message, reason=error.reason, field="model", hint=error.hint
        ) from error
