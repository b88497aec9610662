"""Linear against torch, the axes symbolic."""

import torch
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    return (
        F.scaled_dot_product_attention(query, key, value),
        F.scaled_dot_product_attention(query, key, value, is_causal=True),
        F.scaled_dot_product_attention(query, key, value, scale=0.3),
    )


def test_mm() -> None:
    check(
        lambda x, y: (
            x @ y,
            torch.bmm(x, y),
            torch.matmul(x[0], y[0]),
            torch.mm(x[0], y[0]),
            x @ y[0],
            x @ y[0, :, 0],
            torch.einsum("bij,bjk->bik", x, y),
            torch.einsum("bij,bjk->b", x, y),
        ),
        (FLOATS, "n,3,n"),
        (FLOATS, "n,n,4"),
    )


def test_lin() -> None:
    check(
        torch.nn.Sequential(
            torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2, bias=False)
        ),
        (FLOATS, "n,3,4"),
    )


def test_add() -> None:
    check(
        lambda x, y, z: (
            torch.addmm(z, x, y),
            torch.addmm(z, x, y, beta=0.5, alpha=2),
            torch.baddbmm(z[None], x[None], y[None]),
            torch.outer(x[:, 0], y[0]),
        ),
        (FLOATS, "n,3"),
        (FLOATS, "3,4"),
        (FLOATS, "n,4"),
    )


def test_sdpa() -> None:
    check(attention, (FLOATS, "2,4,n,8"), (FLOATS, "2,4,n+1,8"), (FLOATS, "2,4,n+1,8"))


def test_mask() -> None:
    check(
        lambda q, m, f: (
            F.scaled_dot_product_attention(q, q, q, attn_mask=m),
            F.scaled_dot_product_attention(q, q, q, attn_mask=f),
        ),
        (FLOATS, "2,4,n,8"),
        ("bool", "2,1,n,n"),
        (FLOATS, "n,n"),
    )


def test_gqa() -> None:
    check(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (FLOATS, "2,4,n,8"),
        (FLOATS, "2,2,n,8"),
    )
