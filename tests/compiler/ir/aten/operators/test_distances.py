"""Norms and distances against torch, the axes symbolic."""

import torch
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_norms() -> None:
    check(
        lambda x: (
            torch.linalg.norm(x),
            torch.linalg.norm(x, dim=1),
            torch.linalg.matrix_norm(x),
            torch.linalg.vector_norm(x, 3, 1),
            torch.linalg.vector_norm(x, dim=-1),
            torch.linalg.vector_norm(x, ord=float("inf"), dim=0),
            x.norm(p=0, dim=0),
            x.norm(dim=(0, 1)),
            F.normalize(x, dim=-1),
        ),
        (FLOATS, "n,4"),
    )


def test_distances() -> None:
    check(
        lambda x: (
            torch.cdist(x, x),
            torch.cdist(x, x, p=1),
            torch.cdist(x, x, p=float("inf")),
            torch.dist(x, x * 2),
            F.pairwise_distance(x, x * 2),
            torch.cosine_similarity(x, x * 2 + 1, dim=1),
        ),
        (FLOATS, "n,3"),
    )
