"""Load, run and request compiled dynamic-shape models; running needs numpy, and for GPUs
apache-tvm-ffi.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaxd.client import AsyncClient as AsyncClient
    from relaxd.client import Client as Client
    from relaxd.client.compiling import compile as compile
    from relaxd.loader.model import Model as Model
    from relaxd.loading import load as load
    from relaxd.provenance.freshness import NewestRelease as NewestRelease

    __version__: str

__all__ = ["AsyncClient", "Client", "Model", "NewestRelease", "__version__", "compile", "load"]

_HOMES = {
    "AsyncClient": "relaxd.client",
    "Client": "relaxd.client",
    "Model": "relaxd.loader.model",
    "NewestRelease": "relaxd.provenance.freshness",
    "compile": "relaxd.client.compiling",
    "load": "relaxd.loading",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that loading a bundle needs no HTTP client and the CLI no runtime."""
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'relaxd' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List what the package offers, imported or not."""
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("relaxd")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
