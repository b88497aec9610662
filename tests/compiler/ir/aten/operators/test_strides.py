"""Views by strides of a caller's tensors against torch."""

import pytest
import torch

from compiler.errors import ImportFailed
from tests.compiler.ir.pt2 import running as exported
from tests.compiler.ir.torchscript.running import agree, check, import_module, trace

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


def test_where_views_begin_is_asserted() -> None:
    """torch.export asserts offsets of parts whose bounds a tensor has."""
    values = torch.arange(15.0).reshape(5, 3), torch.tensor([1, 3])
    dims = ({0: torch.export.Dim("n", min=2)}, {})
    module = exported.Function(torch.tensor_split)
    program = exported.export(module, values, (dims,))
    assert "sym_storage_offset" in str(program.graph)
    call = exported.Machine(exported.import_program(program))
    names = [spec.name for spec in call.imported.inputs]
    for starts in ([1, 3], [0, 5], [-1, 5], [4, 2]):
        feeds = dict(zip(names, (values[0].numpy(), torch.tensor(starts).numpy()), strict=True))
        agree(list(call(**feeds).values()), torch.tensor_split(values[0], torch.tensor(starts)))


def test_where_a_view_begins_is_not_known() -> None:
    class Offset(torch.nn.Module):
        def forward(self, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
            part = x[start.item() :]
            return x.as_strided((2,), (1,), part.storage_offset())

    program = exported.export(Offset(), (torch.randn(5, 3), torch.tensor(1)))
    with pytest.raises(ImportFailed, match="where a view begins"):
        exported.import_program(program)
