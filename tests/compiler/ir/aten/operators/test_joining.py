"""Joining against torch, the axes symbolic."""

import torch
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_cat() -> None:
    check(
        lambda x, y: (
            torch.cat([x, y], 0),
            torch.cat([x, x], -1),
            torch.stack([x, x * 2], 1),
            torch.stack([x, x], -1),
            torch.hstack([x, x]),
            torch.vstack([x, y]),
        ),
        (FLOATS, "n,3"),
        (FLOATS, "n+1,3"),
    )


def test_rep() -> None:
    check(
        lambda x: (
            x.repeat(2, 3),
            x.repeat(2, 1, 1),
            x.repeat_interleave(2, 0),
            x.repeat_interleave(3),
            torch.tile(x, (2,)),
            x.flip(0),
            x.flip([0, 1]),
            x.roll(1, 0),
            x.roll([1, -1], [0, 1]),
            x.roll(2),
        ),
        (FLOATS, "n,3"),
    )


def test_pad() -> None:
    check(
        lambda x: (
            F.pad(x, (1, 2)),
            F.pad(x, (1, 2, 0, 1), value=3.0),
            F.pad(x, (1, 1), mode="reflect"),
            F.pad(x, (2, 1), mode="replicate"),
            F.pad(x, (-1, 0)),
            F.pad(x, (1, 1), mode="circular"),
        ),
        (FLOATS, "n,2,4"),
    )


def test_tri() -> None:
    check(lambda x: (x.tril(), x.triu(1), torch.tril(x, -1), (x > 0).tril()), (FLOATS, "n,n"))


def test_mesh() -> None:
    check(
        lambda x, y: (torch.meshgrid(x, y, indexing="ij"), torch.meshgrid(x, y, indexing="xy")),
        (FLOATS, "n"),
        (FLOATS, "3"),
    )


def test_shuf() -> None:
    check(
        lambda x: (
            F.pixel_shuffle(x, 2),
            F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2),
            F.channel_shuffle(x, 4),
        ),
        (FLOATS, "n,8,3,n"),
    )


def test_uneven() -> None:
    check(
        lambda x, r: (
            torch.repeat_interleave(x, r, 0),
            x.repeat_interleave(torch.tensor([1, 2, 0]), 1),
            torch.repeat_interleave(torch.tensor([2, 1])),
            torch.repeat_interleave(r[:1] + 1),
        ),
        (FLOATS, "n,3"),
        ("int64<3", "n"),
    )


def test_sides() -> None:
    check(
        lambda x: (
            torch.column_stack([x[:, 0], x]),
            torch.dstack([x, x]),
            torch.fliplr(x),
            torch.flipud(x),
            torch.atleast_2d(x[0]),
        ),
        (FLOATS, "n,4"),
    )


def test_edges_where_all_is_cropped() -> None:
    check(
        lambda x: (
            F.pad(x, (-4, 5, 0, 0), "replicate"),
            F.pad(x, (0, 0, 2, -1), "replicate"),
            F.pad(x, (1, -4, -1, 2), "replicate"),
        ),
        (FLOATS, "2,n+1,4"),
    )
