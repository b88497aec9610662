"""Tensors of torch from arrays of numpy, and back; bfloat16 is ml_dtypes' in numpy."""

from typing import Any

import ml_dtypes
import numpy as np


def tensor_from(torch: Any, array: np.ndarray[Any, Any]) -> Any:
    """A tensor with a copy of the array."""
    copied = np.array(array, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(copied.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(copied)


def array_from(torch: Any, value: Any) -> np.ndarray[Any, Any]:
    """A tensor or a number as an array."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    dense = value.detach().contiguous()
    if dense.dtype == torch.bfloat16:
        return np.asarray(dense.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(dense.numpy())
