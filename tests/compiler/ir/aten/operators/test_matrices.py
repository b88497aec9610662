"""Diagonals, triangles, determinants and matmuls against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_diagonals() -> None:
    check(
        lambda x: (
            torch.diag(x[0]),
            torch.diag(x, 1),
            torch.diag(x[0], -2),
            torch.diag_embed(x),
            x.T.trace(),
            torch.tril_indices(3, 4, 1),
        ),
        (FLOATS, "n,4"),
    )


def test_matmuls() -> None:
    check(
        lambda x, y: (
            torch.cross(x, x + 1, dim=1),
            torch.linalg.cross(x, y[:1]),
            torch.tensordot(x, y, dims=([0], [0])),
            torch.vdot(x[0], y[0]),
            torch.inner(x, y),
            torch.linalg.multi_dot([x, x.T, y]),
            torch.det(x.T @ x + torch.eye(3)),
        ),
        (FLOATS, "n,3"),
        (FLOATS, "n,3"),
    )
