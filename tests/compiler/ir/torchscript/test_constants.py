"""Constants of programs: which of them are plain numbers, that promote by kind alone, and which are
tensors.
"""

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.compiler.ir.torchscript.running import (
    Compiled,
    agree,
    import_module,
    save_module,
    script,
    trace,
)

DTYPES = ["int8", "int64", "float16", "float32", "float64"]


class Buffers(nn.Module):
    """Buffers without axes, and an expression of them that freezing folds."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(3, dtype=dtype))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.scale, x + (self.scale * 2 + 1)


CONSTANTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "float": lambda x: x * 2.5,
    "integer": lambda x: x + 3,
    "float tensor": lambda x: x * torch.tensor(2.5),
    "double tensor": lambda x: x * torch.tensor(2.5, dtype=torch.float64),
    "integer tensor": lambda x: x + torch.tensor(3),
    "short tensor": lambda x: x + torch.tensor(3, dtype=torch.int16),
    "one element": lambda x: x * torch.tensor([2.5], dtype=torch.float64),
}


def reload(module: Any) -> Any:
    """Save and load a module: flags of tensors that files do not keep are lost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(io.BytesIO(save_module(module)))


def values(dtype: str) -> torch.Tensor:
    return torch.arange(-3, 4).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_saved_trace_promotes_as_torch_runs_it(name: str, dtype: str) -> None:
    x = values(dtype)
    module = reload(trace(CONSTANTS[name], x))
    program = import_module(module, {module.forward.schema.arguments[1].name: f"{dtype}[n]"})
    assert program.outputs[0].dtype == str(module(x).dtype).removeprefix("torch.")


@pytest.mark.parametrize("buffer_dtype", [torch.int64, torch.float32, torch.float64], ids=str)
def test_what_a_module_holds_is_a_tensor(buffer_dtype: torch.dtype) -> None:
    for dtype in DTYPES:
        x = values(dtype)
        module = reload(script(Buffers(buffer_dtype)))
        results = Compiled(module, {"x": f"{dtype}[n]"})(x=x.numpy())
        agree(list(results.values()), module(x))
