"""The compiled libraries of this process: each opened once, from a copy of its own in memory."""

import os
import sys
import threading
from typing import Any

from relaxd.loader.bundles.bundle import Bundle, write_all

_LOCK = threading.Lock()
_OPENED: dict[str, tuple[str, Any]] = {}
"""By the sha256 of a library: the path of its copy, and tvm_ffi's module."""
COPIED: set[str] = set()
"""The sha256 of each library of which this process has a copy."""


def open_library(bundle: Bundle) -> tuple[str, Any]:
    """The bundle's library as tvm_ffi's module, and the path under which the dynamic loader knows
    it; raises BundleError for a file that changed since the manifest was checked.

    The dynamic loader knows a library by its path and its inode, so that a bundle which replaces
    another in the same folder would run the other's code. A copy in memory has a path and an inode
    of its own, and whoever overwrites the file does not change code that runs. tvm_ffi never closes
    a library: one of the same content is opened once, however many models use it.
    """
    from relaxd.loader.tensors.ffi import tvm_ffi

    name = bundle.manifest.library
    expected = bundle.entry(name).sha256
    with _LOCK:
        if expected not in _OPENED:
            path = own_copy(bundle, name)
            # `tvm_ffi.load_module` looks at the ending of the name, which this path does not have.
            load = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")
            _OPENED[expected] = path, load(path, "so")
        return _OPENED[expected]


def own_copy(bundle: Bundle, name: str) -> str:
    """The path of a library of the bundle that nobody overwrites, where the system has such files;
    raises BundleError for a file that changed since the manifest was checked.
    """
    if sys.platform.startswith("linux"):
        COPIED.add(bundle.entry(name).sha256)
        copy = bundle.copies.pop(name, None)
        return in_memory(bundle.read(name)) if copy is None else _path(copy)
    bundle.read(name)  # what is opened is the file as it is now
    return str(bundle.path(name).resolve())


def in_memory(library: bytes) -> str:
    """The path of an anonymous file with these bytes."""
    descriptor = os.memfd_create("relaxd-model.so")
    write_all(descriptor, library)
    return _path(descriptor)


def _path(descriptor: int) -> str:
    """The descriptor stays open for good, since the number of a closed one, and with it the path,
    would come again.
    """
    return f"/proc/self/fd/{descriptor}"
