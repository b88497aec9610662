"""Columns that a mask hides from many queries, in the order of sums of libraries with caches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import relax

from compiler.passes.cpu.families.attention import decode, program
from compiler.passes.fusion import fuse_attention
from tests.compiler.conftest import Compiled, build_module
from tests.compiler.passes.cpu.families.test_attention import attend, attend_masked, exact, heads
from tests.support.geometries import GEOMETRIES, geometry

op = relax.op


def in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have attention summed up as in libraries that keep caches."""

    def steady(*arguments: Any) -> program.Attention:
        return replace(program.Attention(*arguments), steady=True)

    monkeypatch.setattr(fuse_attention, "Attention", steady)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_columns_that_a_mask_hides_from_many_queries(monkeypatch, draw, name):
    """Causal masks, windows, and any others."""
    in_one_order(monkeypatch)
    shapes = {
        "q": ("b", "m", 48),
        "k": ("b", "n", 48),
        "v": ("b", "n", 48),
        "mask": ("b", 1, "m", "n"),
    }
    module = build_module(attend_masked, {key: (shape, "float32") for key, shape in shapes.items()})
    model = Compiled(module, geometry(name))
    for b, m, n in [(1, 33, 33), (2, 47, 300), (1, 65, 257), (1, 40, 511), (1, 50, 64)]:
        q = draw.standard_normal((b, m, 48)).astype("float32")
        k, v = (draw.standard_normal((b, n, 48)).astype("float32") for _ in range(2))
        position, column = np.arange(m)[:, None] + max(n - m, 0), np.arange(n)
        for hidden in (
            column > position,
            (column > position) | (column < position - 20),
            (draw.random((m, n)) < 0.9) & (column != np.minimum(position, n - 1)),
            column >= n - 1 + 0 * position,
        ):
            mask = np.where(hidden, np.float32("-inf"), draw.standard_normal((b, 1, m, n)))
            mask = mask.astype("float32")
            q4, k4, v4 = (x.reshape(b, -1, 3, 16).transpose(0, 2, 1, 3) for x in (q, k, v))
            wanted = exact(q4, k4, v4, lambda scores, mask=mask: scores / 4 + mask)
            wanted = wanted.transpose(0, 2, 1, 3)
            np.testing.assert_allclose(model(q, k, v, mask), wanted, rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_nothing_gives_no_number(monkeypatch, draw):
    in_one_order(monkeypatch)
    shapes = {"q": (1, 40, 48), "k": (1, "n", 48), "v": (1, "n", 48), "mask": (1, 1, 40, "n")}
    module = build_module(
        attend_masked, {name: (shape, "float32") for name, shape in shapes.items()}
    )
    q = draw.standard_normal((1, 40, 48)).astype("float32")
    k, v = (draw.standard_normal((1, 300, 48)).astype("float32") for _ in range(2))
    mask = np.zeros((1, 1, 40, 300), "float32")
    mask[:, :, 7] = -np.inf
    result = Compiled(module)(q, k, v, mask)
    assert np.isnan(result[:, 7]).all()
    assert np.isfinite(np.delete(result, 7, axis=1)).all()


SHAPES = {"q": ("b", "m", 48), "k": ("b", "n", 48), "v": ("b", "n", 48), "mask": ("b", 1, "m", "n")}
FEW, MANY = [(1, 1, 1), (2, 1, 700), (1, 3, 513), (3, 8, 300)], [(1, 33, 700), (2, 57, 300)]
"""(batch, queries, keys): in columns of one part and of several."""


def compile_added(name: str = "native") -> Compiled:
    inputs = {key: (shape, "float32") for key, shape in SHAPES.items()}
    return Compiled(build_module(attend_masked, inputs), geometry(name))


def operands(draw: np.random.Generator, b: int, m: int, n: int) -> list[np.ndarray]:
    return [draw.standard_normal((b, extent, 48)).astype("float32") for extent in (m, n, n)]


def visible(draw: np.random.Generator, b: int, m: int, n: int) -> list[np.ndarray]:
    """Windows, ends of each entry's own, and gaps; every query sees a column."""
    ends = draw.integers(1, n + 1, (b, 1, 1, 1))
    ends[0] = n
    position, column = np.arange(m)[:, None] + ends - min(m, n), np.arange(n)
    causal = (column <= position) | (column == 0)
    return [
        *(
            (column <= position) & (column > position - window) | (column == n - 1)
            for window in (1, 70)
        ),
        causal & (column < ends),
        (draw.random((b, 1, m, n)) < 0.02) | (column == draw.integers(0, n, (b, 1, m, 1))),
        (column // 256 % 2 == 0) & causal | (column == 0),
    ]


@pytest.mark.parametrize("name", GEOMETRIES)
def test_columns_left_out_change_no_bit(monkeypatch, draw, name):
    in_one_order(monkeypatch)
    model = compile_added(name)
    monkeypatch.setattr(decode, "mask_of", lambda _: None)
    result = compile_added(name)
    for b, m, n in FEW + MANY:
        q, k, v = operands(draw, b, m, n)
        for seen in visible(draw, b, m, n):
            bias = draw.standard_normal((b, 1, m, n)).astype("float32")
            mask = np.where(seen, bias, np.float32("-inf"))
            same_bits(model(q, k, v, mask), result(q, k, v, mask))


def test_columns_outside_of_a_window_are_not_read(monkeypatch, draw):
    in_one_order(monkeypatch)
    model = compile_added()
    for b, m, n in [(1, 1, 1000), (2, 7, 700), (1, 40, 1000)]:
        q, k, v = operands(draw, b, m, n)
        position, column = np.arange(m)[:, None] + n - m - 300, np.arange(n)
        seen = (column <= position) & (column > position - 100)
        mask = np.where(seen, np.float32(0), np.float32("-inf"))[None, None].repeat(b, 0)
        want = model(q, k, v, mask)
        # The first column is read with its vector's.
        first = (n - m - 399) // 64 * 64
        for array in (k, v):
            array[:, :first] = array[:, n - 300 + m :] = np.nan
        np.testing.assert_array_equal(model(q, k, v, mask), want)


LEAST = float(np.finfo("float32").min)
HIDING = [LEAST, -1e9, -1e4, -700.0, -300.0, -20.0, -1e-3]


def attend_replaced(builder, q, k, v, keep, replacement):
    """Attention with another score in place of one that the mask hides."""
    q, k, v = (heads(builder, x) for x in (q, k, v))
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = builder.emit(op.divide(scores, relax.const(4.0)))
    scores = builder.emit(op.where(keep, scores, replacement))
    return builder.emit(op.permute_dims(attend(builder, scores, v), [0, 2, 1, 3]))


def same_bits(lhs: np.ndarray, rhs: np.ndarray) -> None:
    np.testing.assert_array_equal(lhs.view(np.int32), rhs.view(np.int32))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_finite_numbers_hide_what_no_score_makes_up_for(monkeypatch, draw, name):
    """Scores of any size, rows that see nothing, and such as see neither the first column nor their
    own: the bits are those of all columns.
    """
    in_one_order(monkeypatch)
    inputs = {key: (shape, "float32") for key, shape in SHAPES.items() if key != "mask"}
    inputs |= {"keep": (("b", 1, "m", "n"), "bool"), "other": ((1,), "float32")}
    picking = build_module(attend_replaced, inputs)
    models = compile_added(name), Compiled(picking, geometry(name))
    monkeypatch.setattr(decode, "mask_of", lambda _: None)
    result = compile_added(name), Compiled(picking, geometry(name))
    for b, m, n in [(1, 33, 300), (2, 40, 41)]:
        q, k, v = operands(draw, b, m, n)
        for seen in visible(draw, b, m, n):
            seen = np.broadcast_to(seen, (b, 1, m, n)).copy()
            seen[:, :, 5] = False
            for hiding in HIDING:
                mask = np.where(seen, np.float32(0), np.float32(hiding))
                for size in (1e-30, 1.0, 50.0, 1e5, 1e19):
                    sized = q * np.float32(size), k, v, mask
                    same_bits(models[0](*sized), result[0](*sized))
                chosen = q, k, v, seen, np.array([hiding], "float32")
                same_bits(models[1](*chosen), result[1](*chosen))


@pytest.mark.parametrize("hiding", [LEAST, -1e9, -1e4])
def test_columns_that_finite_numbers_hide_are_not_read(monkeypatch, draw, hiding):
    in_one_order(monkeypatch)
    model = compile_added()
    for b, m, n in [(1, 40, 1000), (2, 65, 300)]:
        q, k, v = operands(draw, b, m, n)
        position, column = np.arange(m)[:, None] + n - m, np.arange(n)
        seen = (column <= position) & (column > position - 40)
        mask = np.where(seen, np.float32(0), np.float32(hiding))[None, None].repeat(b, 0)
        want = model(q, k, v, mask)
        v[:, : (n - m - 39) // 64 * 64] = np.nan
        np.testing.assert_array_equal(model(q, k, v, mask), want)
        # A key that is no number might have any score.
        k[:, 0] = np.nan
        assert np.isnan(model(q, k, v, mask)).all()


def test_infinity_hides_no_number_beside_finite_ones(monkeypatch, draw):
    """A shorter entry of a batch, behind whose end a cache holds anything."""
    in_one_order(monkeypatch)
    model = compile_added()
    q, k, v = operands(draw, 1, 40, 1000)
    mask = np.where(np.arange(1000) > np.arange(40)[:, None], np.float32(LEAST), np.float32(0))
    mask[:, 300:] = -np.inf
    want = model(q, k, v, mask[None, None])
    k[:, 300:] = v[:, 300:] = np.nan
    np.testing.assert_array_equal(model(q, k, v, mask[None, None]), want)
