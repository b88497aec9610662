"""Attention of heads that are no multiple of 8, of which whole vectors leave some elements over."""

import ctypes
import mmap
import multiprocessing
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.passes.cpu.families.attention import program
from compiler.passes.cpu.families.attention.rows import last_of, pieces
from compiler.passes.fusion import fuse_attention
from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.targets.vector_unit import VectorUnit
from tests.compiler.conftest import Compiled, build_module
from tests.compiler.passes.cpu.families.test_attention import attend, exact, heads
from tests.support.geometries import GEOMETRIES, geometry

op = relax.op
HEADS = 3
HEAD_SIZES = (
    *((2, 2), (6, 6), (14, 14), (20, 20), (33, 33), (36, 100), (3, 17), (16, 10), (10, 32)),
    *((14, 1), (255, 129)),
)
"""(elements of queries and keys, of values)."""
NAMES = cycle(GEOMETRIES)
CASES = [(size, next(NAMES)) for size in HEAD_SIZES for _ in range(2)]
EXTENTS = (
    *((1, 1, 1), (1, 1, 37), (2, 2, 3), (1, 3, 15), (1, 4, 16), (2, 5, 17), (1, 12, 9)),
    *((1, 14, 40), (1, 65, 33), (1, 131, 48), (3, 67, 130), (2, 1, 256)),
)
"""(batch, queries, keys), around the kernel's groups of rows, panels and tasks."""


def graph_of(depth: int, width: int, count: int = HEADS) -> tuple[Any, dict[str, Any]]:
    """Heads split from one axis, a scale and a mask that is added, heads joined again; its
    inputs.
    """

    def graph(builder: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
        q, k, v = heads(builder, q, depth), heads(builder, k, depth), heads(builder, v, width)
        scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
        scores = builder.emit(op.add(builder.emit(op.multiply(scores, relax.const(0.25))), mask))
        return builder.emit(op.permute_dims(attend(builder, scores, v), [0, 2, 1, 3]))

    shapes = {
        "q": ("b", "m", count * depth),
        "k": ("b", "n", count * depth),
        "v": ("b", "n", count * width),
        "mask": ("b", 1, 1, "n"),
    }
    return graph, {name: (shape, "float32") for name, shape in shapes.items()}


def is_fused(depth: int, width: int) -> bool:
    fused = FuseAttention().apply(build_module(*graph_of(depth, width)))
    return "attention" in {gvar.name_hint for gvar in fused.functions}


def arrays_of(
    draw: np.random.Generator, depth: int, width: int, extents: tuple[int, int, int], count: int
) -> list[np.ndarray]:
    b, m, n = extents
    sizes = ((m, depth), (n, depth), (n, width))
    mask = np.where(draw.random((b, 1, 1, n)) < 0.3, np.float32(-1e4), np.float32(0))
    mask[..., 0] = 0
    return [
        *(draw.standard_normal((b, rows, count * size), "float32") for rows, size in sizes),
        mask,
    ]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_heads_of_any_size(size: tuple[int, int], name: str, draw: np.random.Generator) -> None:
    """Masked, at any numbers of queries and keys, in the tilings of several processors."""
    depth, width = size
    assert is_fused(depth, width)
    model = Compiled(build_module(*graph_of(depth, width)), geometry(name))
    for extents in EXTENTS:
        *arguments, mask = arrays_of(draw, depth, width, extents, HEADS)
        q, k, v = (x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3) for x in arguments)
        want = exact(q, k, v, lambda scores, mask=mask: scores * 0.25 + mask)
        np.testing.assert_allclose(
            model(*arguments, mask), want.transpose(0, 2, 1, 3), rtol=1e-4, atol=2e-5
        )


def test_heads_that_are_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of one element, heads that are too long, and ragged ones whose sums have one order."""
    assert is_fused(2, 1)
    assert is_fused(256, 255)
    assert not is_fused(1, 2)
    assert not is_fused(257, 8)
    assert not is_fused(8, 257)

    def steady(*arguments: Any) -> Any:
        return replace(program.Attention(*arguments), steady=True)

    monkeypatch.setattr(fuse_attention, "Attention", steady)
    assert is_fused(16, 8)
    assert not is_fused(14, 8)
    assert not is_fused(8, 14)


def test_nothing_is_read_beside_rows() -> None:
    """Where a read past the rows ends the process."""
    child = multiprocessing.get_context("spawn").Process(target=_run_between_guards)
    child.start()
    child.join()
    assert child.exitcode == 0


def _run_between_guards() -> None:
    draw, count = np.random.default_rng(0), 16
    mappings: list[mmap.mmap] = []
    for depth, width in ((14, 14), (33, 7)):
        model = Compiled(build_module(*graph_of(depth, width, count)), geometry("512/32"))
        for extents in ((1, 1, 1), (1, 2, 3), (2, 13, 17)):
            q, k, v, mask = arrays_of(draw, depth, width, extents, count)
            for last in (False, True):
                arguments = [
                    tvm.runtime.from_dlpack(_guarded(x, last, mappings)) for x in (q, k, v)
                ]
                model.machine["main"](*arguments, tvm.runtime.tensor(mask))


def _guarded(array: np.ndarray, last: bool, mappings: list[mmap.mmap]) -> np.ndarray:
    """The array between two pages that cannot be read: right behind the first one, or right in
    front of the last one. Its bytes are a multiple of a cache line, at which tensors begin.
    """
    page, libc = mmap.PAGESIZE, ctypes.CDLL(None)
    pages = -(-array.nbytes // page) + 2
    memory = mmap.mmap(-1, pages * page)
    mappings.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    offset = (pages - 1) * page - array.nbytes if last else page
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    for guard in (0, pages - 1):
        assert libc.mprotect(ctypes.c_void_p(address + guard * page), page, 0) == 0
    return copy


def test_rows_are_cut_into_vectors() -> None:
    assert pieces(14, 16) == [(0, 8), (8, 4), (12, 2)]
    assert pieces(33, 16) == [(0, 16), (16, 16), (32, 1)]
    wide = VectorUnit(vector_bits=512, registers=32)
    assert [last_of(size, wide) for size in (14, 20, 33, 100)] == [
        (0, 16), (0, 32), (32, 1), (96, 4)
    ]  # fmt: skip
    assert last_of(20, VectorUnit(vector_bits=64)) == (20, 0)
