"""Torch's constants and tensors as ours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from compiler.errors import ImportFailed
from compiler.ir.torchscript.dtypes import NUMBERS
from compiler.ir.values import Known


def constant(raw: Any) -> Any:
    """The value of a prim::Constant: tensors become Known, lists stay lists, devices become strings."""
    return convert(raw.output().toIValue())


def was_number(raw: Any) -> bool:
    """Whether a constant tensor stands for a plain number of the traced program, which promotes as numbers do.

    torch keeps that in a flag that shows only in what it promotes to. Tensors that freezing folded have a type of their own.
    """
    import torch

    tensor = raw.output().toIValue()
    if not isinstance(tensor, torch.Tensor) or tensor.dim() != 0 or raw.output().type().dtype() is not None:
        return False
    probe = {torch.int64: torch.int8, torch.float64: torch.float16}.get(tensor.dtype)
    return probe is not None and torch.result_type(torch.zeros((), dtype=probe), tensor) is probe


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
        raise ImportFailed(f"a constant is a {tensor.layout} tensor of {dtype}, which is not supported", reason="unsupported_dtype")
    dense = tensor.detach().cpu().contiguous()
    if dtype == "bfloat16":
        return Known(dense.view(torch.int16).numpy().view(ml_dtypes.bfloat16), dtype)
    return Known(np.asarray(dense.numpy()), dtype)
