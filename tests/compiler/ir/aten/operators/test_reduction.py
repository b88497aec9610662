"""Reduction against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_all() -> None:
    check(
        lambda x: (
            x.sum(),
            x.mean(),
            x.max(),
            x.min(),
            x.std(),
            x.var(unbiased=False),
            x.prod(),
            x.aminmax(),
            (x > 0).any(),
            (x > 0).all(1),
            (x > 9).any(0, keepdim=True),
            x.argmax(),
            x.argmin(-1),
            x.argmax(0, keepdim=True),
            torch.count_nonzero(x > 0, dim=0),
        ),
        (FLOATS, "n,3"),
    )


def test_int() -> None:
    check(
        lambda x: (
            x.sum(),
            x.sum(0),
            x.prod(1),
            x.max(),
            x.cumsum(0),
            x.max(1)[0],
            x.min(0)[1],
            x.any(),
            x.float().mean(),
        ),
        ("int32", "n,3"),
    )


def test_bool() -> None:
    check(lambda x: (x.sum(), x.cumsum(1), x.sum(0), x.any(1), x.all()), ("bool", "n,3"))


def test_maxdim() -> None:
    check(lambda x: (x.max(1), x.min(0, keepdim=True), torch.max(x, x * 2)), (FLOATS, "n,3"))


def test_cum() -> None:
    check(lambda x: (x.cumsum(0), x.cumsum(-1), x.cumprod(1), x.cummax(0)[0]), (FLOATS, "n,3"))


def test_vm() -> None:
    check(
        lambda x: (torch.var_mean(x, (1, 2)), torch.std_mean(x, 0), torch.var(x, 1, correction=0)),
        (FLOATS, "n,3,2"),
    )
