"""The numbers of tensors of safetensors."""

import numpy as np

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array
from compiler.ir.folder.safetensors import Stored


def as_float32(name: str, stored: Stored) -> Array:
    """The numbers of a tensor; raises LoadError for those that are no floats of 16 or 32 bits."""
    if stored.kind == "BF16":
        # The upper half of a float32's bits.
        upper = view_as(stored, "<u2").astype(np.uint32) << 16
        return np.asarray(upper.view(np.float32))
    if stored.kind in ("F16", "F32"):
        return view_as(stored, "<f2" if stored.kind == "F16" else "<f4").astype(np.float32)
    raise LoadError(
        f"the tensor {name!r} has the format {stored.kind}, which is not supported",
        reason="folder_format",
        field="model",
        hint="save the model as bfloat16, float16 or float32",
    )


def view_as(stored: Stored, form: str) -> Array:
    """Its bytes as numbers of a form."""
    # A tensor may begin at any byte of its file.
    return np.frombuffer(stored.data.tobytes(), form).reshape(stored.shape)
