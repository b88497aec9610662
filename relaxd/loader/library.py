"""The compiled libraries of this process: each opened once, from a copy of its own in memory."""

import hashlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

from relaxd.errors import BundleError
from relaxd.loader.bundle import Bundle

_LOCK = threading.Lock()
_OPENED: dict[str, tuple[Path, Any]] = {}
"""By the sha256 of a library: the path of its copy, and tvm_ffi's module."""


def open_library(bundle: Bundle) -> tuple[Path, Any]:
    """The bundle's library as tvm_ffi's module, and the path under which the dynamic loader knows
    it; raises BundleError for a file that changed since the manifest was checked.

    The dynamic loader knows a library by its path and its inode, so that a bundle which replaces
    another in the same folder would run the other's code. A copy in memory has a path and an inode
    of its own, and whoever overwrites the file does not change code that runs. tvm_ffi never closes
    a library: one of the same content is opened once, however many models use it.
    """
    from relaxd.loader.ffi import tvm_ffi

    name = bundle.manifest.library
    expected = bundle.manifest.files[name].sha256
    with _LOCK:
        if expected not in _OPENED:
            path = own_copy(bundle, name)
            # `tvm_ffi.load_module` looks at the ending of the name, which this path does not have.
            load = tvm_ffi.get_global_func("ffi.Module.load_from_file.so")
            _OPENED[expected] = path, load(str(path), "so")
        return _OPENED[expected]


def own_copy(bundle: Bundle, name: str) -> Path:
    """The path of a library of the bundle that nobody overwrites: on Linux an anonymous file, whose
    descriptor stays open for good, since the number of a closed one, and with it the path, would
    come again. Raises BundleError for a file that changed since the manifest was checked.
    """
    content = bundle.path(name).read_bytes()
    if hashlib.sha256(content).hexdigest() != bundle.manifest.files[name].sha256:
        raise BundleError(
            f"{name} changed while the bundle was being loaded",
            hint="put a new bundle beside the old one and rename it",
            file=name,
        )
    if not sys.platform.startswith("linux"):
        return bundle.path(name).resolve()
    descriptor = os.memfd_create("relaxd-model.so")
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return Path(f"/proc/self/fd/{descriptor}")
