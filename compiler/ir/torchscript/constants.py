"""Torch's constants and tensors as ours."""

from typing import Any

import ml_dtypes
import numpy as np

from compiler.errors import ImportFailed
from compiler.ir.aten.dtypes import NUMBERS
from compiler.ir.graph.values import Known


def constant(raw: Any) -> Any:
    """The value of a prim::Constant: tensors become Known, lists stay lists, devices become
    strings.
    """
    return convert(raw.output().toIValue())


def was_number(raw: Any) -> bool:
    """True for a constant tensor that stands for a plain number of the traced program, which
    promotes as numbers do.

    torch's interpreter takes the tensors without axes among a saved program's constants for
    numbers; those that freezing makes of attributes or of whole expressions have a dtype in their
    type.
    """
    import torch

    tensor = raw.output().toIValue()
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.dim() == 0
        and raw.output().type().dtype() is None
        and tensor.dtype in (torch.int64, torch.float64)
    )


def convert(value: Any) -> Any:
    """A Python value of torch's as ours."""
    import torch

    if isinstance(value, torch.Tensor):
        return known_of(value)
    if isinstance(value, (list, tuple)):
        items = [convert(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: convert(item) for key, item in value.items()}
    if isinstance(value, torch.dtype):
        return NUMBERS.get(str(value).removeprefix("torch."), -1)
    if isinstance(value, torch.device):
        return str(value)
    return value


def known_of(tensor: Any) -> Known:
    """A torch tensor as a known array; raises ImportFailed for kinds that we do not carry."""
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in NUMBERS or tensor.layout is not torch.strided:
        raise ImportFailed(
            f"a constant is a {tensor.layout} tensor of {dtype}, which is not supported",
            reason="unsupported_dtype",
        )
    dense = tensor.detach().cpu().contiguous()
    if dtype == "bfloat16":
        return Known(dense.view(torch.int16).numpy().view(ml_dtypes.bfloat16), dtype)
    return Known(np.asarray(dense.numpy()), dtype)
