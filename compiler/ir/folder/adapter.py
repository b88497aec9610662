"""An adapter that lies in a model's folder, and is merged into its weights."""

import re

import numpy as np

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array
from compiler.ir.folder.archive import Files
from compiler.ir.folder.config import unusable
from relaxd.contract.adapter_files.adapter import Adapter, Key
from relaxd.contract.adapter_files.peft import parse_peft
from relaxd.contract.model_folder import ADAPTER, ADAPTER_WEIGHTS
from relaxd.errors import AdapterError

_MODULE = re.compile(r"model\.layers\.(\d+)\.\w+\.(\w+)")


class MergedAdapter:
    """The changes of an adapter, and which of them were merged."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._merged: set[Key] = set()

    def changes(self, module: str) -> bool:
        """True if the adapter changes the module of that name."""
        return _key(module) in self._adapter.changes

    def merge(self, module: str, weight: Array) -> Array:
        """The matrix [rows, depth] of a module with the adapter in it; raises LoadError for one of
        another size.
        """
        key = _key(module)
        change = self._adapter.changes.get(key) if key is not None else None
        if key is None or change is None:
            return weight
        rows, depth = weight.shape
        if change.down.shape[0] != depth or change.up.shape[1] != rows:
            raise _of_another(f"{module} is a matrix of {rows} rows and {depth} columns")
        self._merged.add(key)
        merged = weight.astype(np.float64)
        merged += change.up.T.astype(np.float64) @ change.down.T.astype(np.float64)
        if (magnitude := self._adapter.magnitudes.get(key)) is not None:
            if magnitude.shape != (rows,):
                raise _of_another(f"{module} has {rows} rows")
            merged *= (magnitude / np.linalg.norm(merged, axis=1))[:, None]
        return merged.astype(np.float32)

    def require_all_merged(self) -> None:
        """Raises LoadError where a change is of no matmul of the model."""
        if left := sorted(self._adapter.changes.keys() - self._merged):
            layer, name = left[0]
            raise _of_another(f"the model has no {name} in layer {layer}")


def adapter_in(files: Files) -> MergedAdapter | None:
    """The adapter among a folder's files; raises LoadError."""
    if ADAPTER not in files.arrays:
        return None
    try:
        config, weights = files.arrays[ADAPTER].tobytes(), files.arrays[ADAPTER_WEIGHTS]
        return MergedAdapter(parse_peft(config, weights, dora=True))
    except AdapterError as error:
        raise LoadError(error.message, reason="adapter", field="model", hint=error.hint) from error


def _key(module: str) -> Key | None:
    match = _MODULE.fullmatch(module)
    return None if match is None else (int(match.group(1)), match.group(2))


def _of_another(why: str) -> LoadError:
    error = unusable(f"the adapter in the folder is of another model: {why}")
    error.hint = f"put the adapter of this model into the folder, or drop {ADAPTER}"
    return error
