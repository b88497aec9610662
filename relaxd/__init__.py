"""Load, run and request compiled dynamic-shape models; running needs numpy and apache-tvm-ffi."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaxd.client import Client as Client
    from relaxd.loader.model import Model as Model
    from relaxd.loader.model import load as load

__all__ = ["Client", "Model", "load"]

_HOMES = {"Client": "relaxd.client", "Model": "relaxd.loader.model", "load": "relaxd.loader.model"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that loading a bundle needs no HTTP client and the CLI no runtime."""
    if name not in _HOMES:
        raise AttributeError(f"module 'relaxd' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
