"""Views by strides of a caller's tensors against torch."""

import pytest
import torch

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import check, import_module, trace

FLOATS = "float32"


def test_of_an_input() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        windows = x.as_strided((x.shape[0], 2, 3), (4, 1, 1))
        return windows, torch.as_strided_copy(x, (2, 2), (1, 2), 1), windows.sum()

    check(of, (FLOATS, "n,4"), sizes=(3, 2, 7, 13))


def test_scattered() -> None:
    check(
        lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 4), 1),
        (FLOATS, "n,4"),
        (FLOATS, "2,2"),
        sizes=(3, 2, 7),
    )


def test_mutation_is_refused() -> None:
    def of(x: torch.Tensor) -> torch.Tensor:
        x.as_strided((3,), (4,), 1).mul_(2)
        return x

    with pytest.raises(ImportFailed, match="overlap"):
        import_module(trace(of, torch.randn(3, 4)), {"x": "float32[3,4]"})


def test_of_a_result_is_refused() -> None:
    module = trace(lambda x: (x + 1).as_strided((2, 2), (1, 2)), torch.randn(3, 4))
    with pytest.raises(ImportFailed, match="how this tensor lies in memory is not known"):
        import_module(module, {"x": "float32[3,4]"})
