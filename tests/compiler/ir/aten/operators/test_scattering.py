"""Writing at computed positions against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_reductions() -> None:
    check(
        lambda x, i: (
            x.scatter_reduce(1, i, x, "sum", include_self=False),
            x.scatter_reduce(1, i, x, "mean"),
            x.scatter_reduce(1, i, x.abs(), "mean", include_self=False),
            x.scatter_reduce(1, i, x, "prod", include_self=False),
            x.scatter_reduce(1, i, x, "amin", include_self=False),
            x.int().scatter_reduce(1, i, x.int(), "amax", include_self=False),
        ),
        (FLOATS, "n,3"),
        ("int64<3", "n,3"),
    )


def test_scatter() -> None:
    check(
        lambda x, i: (
            x.scatter(1, i[:, :1], 7.0),
            x.scatter_add(1, i, x[:, :3]),
            x.scatter(1, i[:, :1], x[:, :1] * 2),
        ),
        (FLOATS, "n,5"),
        ("int64<5", "n,3"),
    )


def test_put() -> None:
    check(
        lambda x, i, v: (
            x.index_put((i,), v),
            x.index_put((torch.zeros_like(i), i), torch.tensor(3.0)),
            x.index_add(0, i, v),
            x.index_fill(0, i, 2.0),
            x.index_put((i,), v, accumulate=True),
        ),
        (FLOATS, "5,5"),
        ("int64<5", "2"),
        (FLOATS, "2,5"),
    )


def test_msc() -> None:
    check(lambda x, y: x.masked_scatter(x > 0, y), (FLOATS, "n,4"), (FLOATS, "n,4"))


def test_put_at_axes_apart() -> None:
    def of(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        replaced, added = x.clone(), x.clone()
        replaced[i, :, i] = v
        added[i, :, torch.tensor([0])] += v
        return replaced, added

    check(of, (FLOATS, "5,n,5"), ("int64<5", "2"), (FLOATS, "2,n"))


def test_masked_indices_out_of_range() -> None:
    aten = torch.ops.aten

    def of(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        far = i * 3 - 4
        inside = (far >= 0) & (far < 5)
        rows = torch.zeros_like(i)
        return (
            aten._unsafe_masked_index(x, inside[:, None], [far], 7.0),
            aten._unsafe_masked_index(x.t(), inside, [rows, far], -1.0),
            aten._unsafe_masked_index_put_accumulate(x, inside[:, None] & (v > 0), [far], v),
        )

    check(of, (FLOATS, "5,4"), ("int64<5", "n"), (FLOATS, "n,4"))
