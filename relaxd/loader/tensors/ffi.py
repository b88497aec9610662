"""Imports tvm_ffi without torch, which it would import where torch is installed: 2 s and 190 MB
that running a bundle has no use for.

A program that imports torch first keeps it, and one may import it afterwards.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Refusing:
    """A finder that has no torch for one thread, and that leaves everything else to the others."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError for torch, in the thread that made the finder."""
        if name == "torch" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("torch is not needed here", name=name)


@contextmanager
def _without_torch() -> Iterator[None]:
    finder: Any = _Refusing()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _without_torch():
    import tvm_ffi as tvm_ffi
