"""Reads an adapter, whichever its format."""

from pathlib import Path

from relaxd.contract.adapter_files.adapter import Adapter, malformed_error
from relaxd.contract.adapter_files.gguf import read_adapter_gguf
from relaxd.contract.adapter_files.peft import read_peft
from relaxd.contract.model_folder import ADAPTER
from relaxd.contract.weight_files.gguf import is_gguf


def read_adapter(path: Path) -> Adapter:
    """The adapter in a folder of PEFT's or a GGUF file; raises AdapterError."""
    if path.is_dir():
        return read_peft(path)
    if is_gguf(path):
        return read_adapter_gguf(path)
    what = "is no GGUF file" if path.exists() else "does not exist"
    raise malformed_error(f"{path} {what}; an adapter is a folder with {ADAPTER}, or a GGUF file")
