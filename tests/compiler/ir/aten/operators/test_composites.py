"""Products by blocks, turns, copies of views, bags of embeddings, writes by index beside torch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import Spec, check

MATRIX: Spec = ("float32", "n,4")
ROWS = torch.tensor([0, 2, 2])

OF_MATRICES: dict[str, Callable[..., Any]] = {
    "rot90": lambda x: [torch.rot90(x, k, (0, 1)) for k in (-1, 0, 1, 2)],
    "kron": lambda x: torch.kron(x, torch.arange(6.0).reshape(3, 2)),
    "block_diag": lambda x: torch.block_diag(x, torch.ones(2, 1), x.T),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[:, 0], torch.arange(3.0)),
    "combinations": lambda x: torch.combinations(x[0], 3),
    "combinations_with_replacement": lambda x: torch.combinations(x[0], 2, True),
    "pdist": lambda x: F.pdist(x.T),
    "vander": lambda x: torch.vander(x[:, 0], 3),
    "diagflat": lambda x: torch.diagflat(x, -1),
    "diag_embed": lambda x: torch.diag_embed(x, 1, dim1=2, dim2=0),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x[:1], torch.ones(1)),
    "addr": lambda x: torch.addr(x, x[:, 0], x[0], alpha=0.5, beta=2),
    "sum_to_size": lambda x: x.sum_to_size(1, 4),
    "hsplit": lambda x: torch.hsplit(x, 2),
    "hsplit_at": lambda x: torch.hsplit(x, [1, 3]),
    "vsplit": lambda x: torch.vsplit(x.T, 2),
    "dsplit": lambda x: torch.dsplit(x[None, :, :], [1]),
    "copies": lambda x: [
        torch.transpose_copy(x, 0, 1), torch.slice_copy(x, 1, 1, 3), torch.view_copy(x, [-1]),
        torch.unsqueeze_copy(x, 0), torch.expand_copy(x[:, :1], [-1, 3]),
        *torch.split_copy(x, 2, 1), *torch.unbind_copy(x, 1),
    ],
    "index_reduce": lambda x: x.T.index_reduce(0, ROWS, x.T[:3], "prod"),
    "index_reduce_alone": lambda x: x.T.index_reduce(
        0, ROWS, x.T[:3], "mean", include_self=False
    ),
    "of_no_axes": lambda x: [
        x.sum().index_select(0, torch.tensor([0])),
        *torch.median(x.sum(), 0), *torch.kthvalue(x.sum(), 1),
        *torch.nonzero(x.sum() + 99, as_tuple=True), *torch.where(x.sum() > -99),
        x.sum().unfold(0, 1, 1), x.sum().index_copy(0, torch.tensor(0), x[0, 0]),
        x.sum().index_reduce(0, torch.tensor([0]), x[0, 0], "amax"),
    ],
    "put": lambda x: x.put(torch.tensor([0, -1]), torch.ones(2), accumulate=True),
    "nonzero_static": lambda x: torch.nonzero_static(x > 0, size=5, fill_value=-7),
    "unpool": lambda x: torch.ops.aten.max_unpool2d(
        *F.max_pool2d(x[None, :, None], (1, 2), return_indices=True), [1, 4]
    ),
    "adaptive_places": lambda x: F.adaptive_max_pool1d(x[None], 3, return_indices=True),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_MATRICES)
def test_of_matrices(name: str) -> None:
    check(OF_MATRICES[name], MATRIX)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    weight, offsets = torch.arange(12.0).reshape(6, 2).sin(), torch.tensor([0, 0, 1])
    check(lambda x: F.embedding_bag(x, weight, offsets, mode=mode, padding_idx=1), ("int64<6", "n"))
