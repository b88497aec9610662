"""Sorting against torch, the axes symbolic."""

import numpy as np
import pytest
import torch

from tests.compiler.ir.torchscript.running import agree, check, script

FLOATS = "float32"


def test_sort() -> None:
    check(
        lambda x: (
            x.sort(),
            x.sort(0, descending=True),
            x.argsort(1),
            x.topk(2, 1),
            torch.topk(x, 1, dim=1, largest=False),
            x.median(1),
            x.median(),
            x.kthvalue(2, 1),
        ),
        (FLOATS, "n,5"),
    )


def kth_values(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        part
        for k in (1, 2, 7, 16, 17)
        for keep in (False, True)
        for part in x.kthvalue(k, 1, keepdim=keep)
    ]


def test_of_equal_elements_the_index_that_torch_names() -> None:
    check(lambda x: (*kth_values(x), *x.kthvalue(1, 0)), ("int64", "n,17"), sizes=(1, 3, 40))
    check(lambda x: x.kthvalue(2, 1), ("int64<2", "3,n"), sizes=(2, 3, 4, 5, 8, 33, 500))
    check(lambda x: kth_values((x > 0).float()), (FLOATS, "n,17"), sizes=(3, 25))


def test_kth_values_beside_nan_and_infinities() -> None:
    odd = torch.tensor([[3.0, torch.nan, -torch.inf, torch.nan, torch.inf, -0.0, 0.0, 1.0, 1.0]])
    rows = torch.cat([odd, odd.flip(1), odd.roll(4, 1), torch.full_like(odd, torch.nan)])

    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(part for k in range(1, 10) for part in x.kthvalue(k, 1))

    compiled = check(of, (FLOATS, "n,9"), sizes=(3,))
    (name,) = (spec.name for spec in compiled.imported.inputs)
    agree(list(compiled(**{name: rows.numpy()}).values()), of(rows))


def test_a_k_that_is_not_there() -> None:
    class Reads(torch.nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return x.kthvalue(int(k), 1)[0]

    compiled = check(script(Reads()), (FLOATS, "n,m"), ("int64", ""), sizes=())
    x = torch.randn(3, 5)
    for k in (1, 5):
        agree(list(compiled(x=x.numpy(), k=np.array(k)).values()), x.kthvalue(k, 1)[0])
    for k, columns in ((0, 5), (6, 5), (-1, 5), (1, 0)):
        with pytest.raises(RuntimeError, match="match_cast"):
            compiled(x=np.zeros((3, columns), np.float32), k=np.array(k))


def test_uniq() -> None:
    check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), ("int32", "n,3"))


def test_boundaries() -> None:
    check(
        lambda x, y: (
            torch.searchsorted(y.sort()[0], x, side="right"),
            torch.searchsorted(y.sort()[0], x),
            torch.bucketize(x, y.sort()[0], right=True, out_int32=True),
        ),
        ("int32", "n,3"),
        ("int32", "5"),
    )
