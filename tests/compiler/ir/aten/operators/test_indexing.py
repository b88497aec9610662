"""Indexing against torch, the axes symbolic."""

import torch
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_emb() -> None:
    check(torch.nn.Embedding(10, 4), ("int64<10", "n,3"))


def test_sel() -> None:
    check(
        lambda x, i: (
            x.index_select(1, i),
            x[:, i],
            x[i * 0],
            x[:, i, i],
            x[i * 0, :, i],
            x[:, :, i - 5],
        ),
        (FLOATS, "n,5,5"),
        ("int64<5", "3"),
    )


def test_gather() -> None:
    check(
        lambda x, i: (
            torch.gather(x, 1, i),
            torch.take_along_dim(x, i, 1),
            torch.take_along_dim(x, i * 3 - 7, 1),
        ),
        (FLOATS, "n,5"),
        ("int64<5", "n,3"),
    )


def test_gather_of_flattened_tensors() -> None:
    check(lambda x, i: torch.take_along_dim(x, i), (FLOATS, "n,5"), ("int64<5", "n,3"))


def test_mask() -> None:
    check(
        lambda x: (
            x[x > 0],
            x[x[:, 0] > 0],
            torch.masked_select(x, x < 0),
            x.nonzero(),
            (x > 0).nonzero(as_tuple=True),
            torch.where(x > 0),
        ),
        (FLOATS, "n,4"),
    )


def test_onehot() -> None:
    check(
        lambda i: (
            F.one_hot(i, 6),
            torch.bucketize(i.float() + 0.5, torch.tensor([1.0, 2.0, 3.0])),
        ),
        ("int64<5", "n,2"),
    )


def test_take() -> None:
    check(
        lambda x, i: (
            torch.take(x, i),
            torch.isin(x.int(), i),
            torch.isin(i, 1, invert=True),
            torch.argwhere(x > 0),
        ),
        (FLOATS, "n,5"),
        ("int64<5", "3"),
    )
