"""Maps a bundle's weights from their file, so that they load at once and processes share them, or
reads them into memory of this process.
"""

import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.bundle.manifest import Weight
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import READ, Bundle
from relaxd.loader.machine import large_pages


def content_of(bundle: Bundle, filename: str) -> np.ndarray:
    """The bytes of the file of weights."""
    path = bundle.path_of(filename)
    return large_pages.read(Path(path)) if bundle.copied else _mapped(path)


def _mapped(path: str) -> np.ndarray:
    descriptor = os.open(path, READ)
    try:
        if not os.fstat(descriptor).st_size:
            return np.zeros(0, np.uint8)  # no system maps nothing
        # Copy on write: DLPack hands out writable memory alone, and nobody writes it.
        return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY), np.uint8)
    finally:
        os.close(descriptor)


def tensors_of(bundle: Bundle) -> list[Any]:
    """One tensor a weight, each of which keeps the file's bytes alive; raises BundleError. Needs
    the TVM runtime to be open.
    """
    manifest = bundle.manifest
    content = content_of(bundle, manifest.weights_file)
    return [_tensor(content, weight, manifest.weights_file) for weight in manifest.weights]


def _tensor(content: np.ndarray, weight: Weight, filename: str) -> Any:
    from relaxd.loader.tensors.ffi import tvm_ffi

    stored = np.dtype("uint16" if weight.dtype == "bfloat16" else weight.dtype)
    end = weight.offset + math.prod(weight.shape) * stored.itemsize
    if not 0 <= weight.offset <= end <= content.size:
        raise BundleError(
            f"{filename} ends before a weight that the manifest lists",
            hint="fetch the bundle again",
            file=filename,
        )
    if end == weight.offset:
        # numpy and TVM differ on the strides of nothing.
        allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        return allocate(
            tvm_ffi.Shape(weight.shape), tvm_ffi.dtype(weight.dtype), tvm_ffi.device("cpu", 0), None
        )
    tensor = tvm_ffi.from_dlpack(
        np.asarray(content[weight.offset : end]).view(stored).reshape(weight.shape)
    )
    if weight.dtype == "bfloat16":
        view = tvm_ffi.get_global_func("runtime.TVMTensorCreateView")
        return view(tensor, tensor.shape, tvm_ffi.dtype(weight.dtype), 0)
    return tensor
