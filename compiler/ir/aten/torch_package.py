"""The installed torch: the one place that imports it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compiler.errors import ToolchainMissing
from relaxd.errors import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator


def load_torch() -> Any:
    """The torch package, on one thread; raises ToolchainMissing where it is not installed."""
    if sys.modules.get("torch", ...) is None:
        # The compile process keeps others from importing it.
        del sys.modules["torch"]
    try:
        import torch
    except ImportError as error:
        raise ToolchainMissing(
            "a TorchScript model needs torch, which is not installed",
            reason="torch",
            hint=install_hint("torchscript"),
        ) from error
    torch.set_num_threads(1)
    return torch


@contextmanager
def without_torch() -> Iterator[None]:
    """Keeps tvm_ffi from binding itself to torch while it is imported: seconds, and nothing here
    needs it.
    """
    torch = sys.modules.get("torch")
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if torch is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = torch
