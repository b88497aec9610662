"""Views against torch, the axes symbolic."""

import numpy as np
import pytest
import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_view() -> None:
    check(
        lambda x: (
            x.view(-1),
            x.view(x.size(0), -1),
            x.reshape(3, -1),
            x.reshape(x.size(0), 2, -1),
            x.flatten(),
            x.flatten(1),
            x.ravel(),
            torch.atleast_3d(x[0]),
            x.view(x.size(0) * 3, 4),
            x.unflatten(2, (2, -1)),
        ),
        (FLOATS, "n,3,4"),
    )


def test_axes() -> None:
    check(
        lambda x: (
            x.transpose(0, 1),
            x.permute(2, 0, 1),
            x.unsqueeze(1),
            x.unsqueeze(-1),
            x[:, :, :1].squeeze(2),
            x.movedim(0, -1),
            x.transpose(-1, -2),
            x.sum((0, 1)).t(),
            x[0].t(),
            x.mT,
        ),
        (FLOATS, "n,3,4"),
    )


def test_slice() -> None:
    check(
        lambda x: (
            x[0],
            x[-1],
            x[:, 1],
            x[1:],
            x[:-1],
            x[..., ::2],
            x[:, 1:3],
            x[:, -2:],
            x.narrow(1, 1, 2),
            x.select(1, -1),
            x[:2],
            x[None],
            x[:, None, ...],
        ),
        (FLOATS, "n,3,4"),
    )


def test_split() -> None:
    check(
        lambda x: (
            x.split(2, 1),
            x.chunk(3, 2),
            x.split([1, 2], 1),
            x.unbind(1),
            torch.chunk(x, 2, 1),
            x.tensor_split(3, 2),
            x.tensor_split((1, 3), 2),
        ),
        (FLOATS, "n,3,4"),
    )


def test_tensor_split() -> None:
    check(lambda x: (x.tensor_split(3, 2), x.tensor_split((1, 3), 2)), (FLOATS, "n,3,4"))


def test_parts_of_an_axis_that_they_do_not_divide() -> None:
    check(
        lambda x: (
            *x.tensor_split(3, 0),
            *x.vsplit(1),
            *x.tensor_split((1, -1, 9), 0),
            *(part.sum(0) for part in x.chunk(3, 0)),
        ),
        (FLOATS, "n,4"),
        sizes=(3, 5, 6, 7, 8, 13),
    )


def test_chunks_are_as_many_as_the_program_takes_apart() -> None:
    check(lambda x: x.split(2, 0), (FLOATS, "n,4"), sizes=(3, 4))
    compiled = check(lambda x: x.chunk(3, 0), (FLOATS, "n,4"), sizes=(3, 5))
    with pytest.raises(Exception, match="mismatch"):
        compiled(x=np.zeros((4, 4), np.float32))


def test_splitn() -> None:
    check(lambda x, y: x.chunk(2, 0), (FLOATS, "2*n,3"), (FLOATS, "n"))


def test_expand() -> None:
    check(
        lambda x: (
            x.expand(x.size(0), 4, 3),
            x.expand(2, -1, -1, 3),
            x.expand_as(torch.zeros(x.size(0), 5, 3)),
            torch.broadcast_to(x, (2, x.size(0), 1, 3)),
        ),
        (FLOATS, "n,1,3"),
    )


def test_diag() -> None:
    check(
        lambda x: (x.diagonal(), x.diagonal(1, 0, 1), x.unfold(1, 2, 1), x.unfold(1, 3, 2)),
        (FLOATS, "n,5"),
    )


def test_to() -> None:
    check(
        lambda x: (
            x.to(torch.float64),
            x.int(),
            x.long(),
            x.half(),
            x.bool(),
            x.to(x),
            x.type_as(x.int()),
            x.clone(),
            x.contiguous(),
            x.double().float(),
        ),
        (FLOATS, "n,3"),
    )


def test_chunks_joined() -> None:
    def of(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch._chunk_cat([x, y], 0, 2), torch._chunk_cat([y, y], 1, 3)

    check(of, (FLOATS, "n,3"), (FLOATS, "n,4"))
