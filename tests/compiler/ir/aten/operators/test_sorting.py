"""Sorting against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

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
