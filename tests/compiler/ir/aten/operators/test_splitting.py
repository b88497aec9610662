"""Parts of an axis whose number only run time knows, beside torch."""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.errors import ImportFailed
from compiler.ir.aten.operators.splitting import _count_chunks
from tests.compiler.ir.torchscript.running import arguments, check, import_module, script, trace

FLOATS = "float32"
SIZES = (2, 3, 4, 5, 6, 7, 8, 9, 13)


class TakesItems(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts, chunks = x.split(2), x.chunk(3)
        return [parts[0] * 2, parts[-1] + 1, chunks[1], chunks[-1], torch.unsafe_chunk(x, 4)[-2]]


class Measures(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[int, int, int]:
        return len(x.split(2)), len(x.chunk(3)), len(x.tensor_split(x.size(0)))


class Loops(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        totals, total = [], torch.zeros(3)
        for part in x.split(3):
            totals.append(part.sum(0))
        for index, part in enumerate(x.chunk(4)):
            total = total + part[0] * (index + 1)
        return torch.stack(totals), total


class Joins(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat(x.split(2)), torch.cat(torch.chunk(x, 3))


class Stacks(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack(x.split(2), 1), torch.cat(x.split(2), 1)


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 1
        y.split(2)[-1].mul_(10)
        y.chunk(3)[0].add_(1)
        copies = torch.split_copy(y, 2)
        copies[0].zero_()
        return y, copies[-1]


class Returns(nn.Module):
    def __init__(self, chunks: int) -> None:
        super().__init__()
        self.chunks = chunks

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return x.chunk(self.chunks)


class Appends(nn.Module):
    def forward(self, x: torch.Tensor) -> int:
        parts = list(x.split(2))
        parts.append(x)
        return len(parts)


def test_single_parts_of_a_list_of_any_length() -> None:
    check(script(TakesItems()), (FLOATS, "n,3"), sizes=SIZES[1:])


def test_a_part_that_is_not_there() -> None:
    compiled = check(script(TakesItems()), (FLOATS, "n,3"), sizes=(5,))
    with pytest.raises(Exception, match="mismatch"):
        compiled(x=np.zeros((1, 3), np.float32))


def test_numbers_of_parts() -> None:
    check(script(Measures()), (FLOATS, "n,3"), sizes=SIZES)
    check(script(Measures()), (FLOATS, "n,3"), sizes=(1, 2), dims={"n": (1, None)})


def test_the_parts_of_an_empty_axis() -> None:
    class Counted(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[int, int, torch.Tensor]:
            return len(x.split(2)), len(x.chunk(3)), x.chunk(3)[2]

    check(script(Counted()), (FLOATS, "n,3"), sizes=(0, 5, 9), dims={"n": (0, None)})


def test_loops_over_parts() -> None:
    check(script(Loops()), (FLOATS, "n,3"), sizes=SIZES)


def test_parts_joined_again() -> None:
    check(script(Joins()), (FLOATS, "n,3"), sizes=SIZES)


def test_parts_of_one_size_stacked() -> None:
    compiled = check(script(Stacks()), (FLOATS, "n,3"), sizes=(2, 4, 8))
    with pytest.raises(Exception, match="mismatch"):
        compiled(x=np.zeros((5, 3), np.float32))


def test_parts_that_change_their_source() -> None:
    check(script(Writes()), (FLOATS, "n,3"), sizes=SIZES)


def test_chunks_whose_number_the_range_proves() -> None:
    check(script(Returns(3)), (FLOATS, "n,3"), sizes=(5, 6, 7, 13), dims={"n": (5, None)})
    check(script(Returns(2)), (FLOATS, "n,3"), sizes=(2, 3, 7), dims={"n": (2, None)})
    check(script(Returns(4)), (FLOATS, "n,3"), sizes=(5, 6), dims={"n": (5, 6)})


def test_a_returned_list_of_any_length_says_what_to_declare() -> None:
    with pytest.raises(ImportFailed, match="forward returns a list") as caught:
        import_module(script(Returns(3)), {"x": "float32[n,3]"})
    assert caught.value.failure.hint == (
        "declare n to be at least 5, which always has 3 chunks, or a multiple of 3"
    )


def test_a_list_of_parts_that_grows() -> None:
    with pytest.raises(ImportFailed, match="length only run time knows") as caught:
        import_module(script(Appends()), {"x": "float32[n,3]"})
    assert caught.value.failure.hint == "fix the dim that is split"


@pytest.mark.parametrize("chunks", range(1, 12))
def test_how_many_chunks(chunks: int) -> None:
    counts = [len(torch.zeros(extent).chunk(chunks)) for extent in range(150)]
    for low in range(0, 140, 7):
        for high in (low, low + 1, low + 9, 149):
            wanted = set(counts[low : high + 1])
            known = _count_chunks(chunks, low, None if high == 149 else high)
            assert known == (wanted.pop() if len(wanted) == 1 else None)


def test_parts_that_begin_at_the_numbers_of_a_tensor() -> None:
    def of(x: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.tensor_split(x, starts)

    module = trace(of, torch.zeros(5, 3), torch.tensor([1, 3, 4]))
    compiled = check(module, (FLOATS, "n,3"), ("int64<4", "3"), sizes=(5, 7))
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    names = [spec.name for spec in compiled.imported.inputs]
    for starts in ([0, 0, 6], [4, 2, 5], [-2, 9, 1], [-1, -9, 2**61]):
        wanted = torch.tensor_split(torch.tensor(x), torch.tensor(starts))
        feeds = dict(zip(names, (x, np.array(starts)), strict=True))
        for have, want in zip(compiled(**feeds).values(), wanted, strict=True):
            np.testing.assert_array_equal(have, want.numpy())


def test_as_many_parts_as_a_tensor_says() -> None:
    class Balanced(nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, int]:
            parts = torch.tensor_split(x, k)
            return parts[0], len(parts)

    compiled = check(script(Balanced()), (FLOATS, "n,3"), ("int64<4", ""), sizes=())
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    for count in (1, 2, 3, 7, 9):
        first, length = compiled(x=x, k=np.array(count)).values()
        np.testing.assert_array_equal(first, torch.tensor_split(torch.tensor(x), count)[0].numpy())
        assert length == count
    with pytest.raises(Exception, match="mismatch"):
        compiled(x=x, k=np.array(0))


def test_a_number_of_parts_that_the_declared_size_does_not_have() -> None:
    module = trace(lambda x: x.chunk(3), torch.zeros(5, 3))
    (name,) = arguments(module)
    with pytest.raises(ImportFailed, match="takes a list of 2 apart into 3"):
        import_module(module, {name: "float32[4,3]"})
