import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.caches import CacheUse
from compiler.verify.inputs.filling import agreeing, fill_lengths, objection
from compiler.verify.inputs.points import Point
from relaxd.contract.bundle.state import Part
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from tests.support.declared import spec

INPUTS = [
    spec("mask=int64[n,t]"),
    spec("past=float32[n,2,p,8]"),
    spec("places=int64[n,s]"),
    spec("last=int32[n]"),
    spec("count=int32[n,1]"),
    spec("most=int32[]"),
]
PARTS = {
    "mask": Part.MASK,
    "places": Part.POSITIONS,
    "last": Part.LAST,
    "count": Part.LENGTH,
    "most": Part.TOTAL,
}
BY_DIM = CacheUse(Axis("n"), Axis("s"), Axis("p"), Axis("t"), PARTS)
BY_INPUT = CacheUse(Axis("n"), Axis("s"), Axis("p"), None, PARTS)


def dims(most: int) -> list[Dim]:
    return [Dim("n", 1, 4), Dim("s", 1, 64), Dim("p", 0, 100), Dim("t", 1, most)]


def point_of(n: int, s: int, p: int, t: int = 1) -> Point:
    return Point("p", {"n": n, "s": s, "p": p, "t": t})


@given(st.integers(1, 4), st.integers(1, 64), st.integers(0, 100), st.integers(1, 200))
def test_every_point_is_one_that_a_cache_can_have(n: int, s: int, p: int, most: int) -> None:
    agreed = agreeing(point_of(n, s, p), dims(most), [BY_DIM])
    sizes = agreed.dims
    assert all(dim.admits(sizes[dim.name]) for dim in dims(most))
    assert sizes["s"] <= sizes["t"] <= max(sizes["p"] + sizes["s"], 1)
    assert objection(agreed, [BY_DIM]) is None
    assert sizes["t"] == sizes["p"] + sizes["s"] or sizes["t"] <= max(sizes["p"], 1)
    assert sizes["n"] == 1 or sizes["s"] == 1 or sizes["p"] == 0


def test_the_total_is_past_and_new_tokens() -> None:
    assert agreeing(point_of(1, 7, 9), dims(64), [BY_DIM]).dims["t"] == 16
    assert agreeing(point_of(1, 7, 60), dims(64), [BY_DIM]).dims["t"] == 60
    assert agreeing(point_of(3, 7, 0), dims(64), [BY_DIM]).dims == {"n": 3, "s": 7, "p": 0, "t": 7}


def test_points_without_caches_stay() -> None:
    point = point_of(3, 5, 7, 11)
    assert agreeing(point, dims(64), []) == point
    assert not fill_lengths(point, INPUTS, [], 0)


def test_sizes_that_no_range_can_mend_are_named() -> None:
    fixed = CacheUse(Axis("n"), Axis("9"), Axis("p"), Axis("t"), {})
    point = agreeing(point_of(1, 1, 2), dims(5), [fixed])
    assert objection(point, [fixed]) == "9 new tokens do not fit into 2 in all"


@pytest.mark.parametrize("use", [BY_DIM, BY_INPUT])
def test_lengths_of_single_tokens_differ_and_agree(use: CacheUse) -> None:
    lengths = fill_lengths(point_of(4, 1, 90, 91), INPUTS, [use], 0)
    assert {name: lengths[name].shape for name in lengths} == {
        "mask": (4, 91), "places": (4, 1), "last": (4,), "count": (4, 1), "most": (),
    }  # fmt: skip
    ends = lengths["count"].reshape(-1)
    assert ends[0] == 91 == lengths["most"]
    assert len(set(ends)) > 1
    assert (lengths["last"] == ends - 1).all()
    assert (lengths["places"].reshape(-1) == ends - 1).all()
    assert (lengths["mask"].sum(1) == ends).all()
    assert (np.diff(lengths["mask"], axis=1) <= 0).all()
    assert [lengths[name].dtype.name for name in ("mask", "last")] == ["int64", "int32"]


def test_several_tokens_fill_the_cache() -> None:
    lengths = fill_lengths(point_of(2, 3, 0, 3), INPUTS, [BY_DIM], 0)
    assert lengths["mask"].all()
    assert lengths["places"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert lengths["last"].tolist() == [2, 2]


def test_an_input_of_another_shape_is_left_alone() -> None:
    odd = [spec("mask=int64[n,1,t]"), spec("last=int32[5]")]
    use = CacheUse(
        Axis("n"), Axis("s"), Axis("p"), Axis("t"), {"mask": Part.MASK, "last": Part.LAST}
    )
    assert not fill_lengths(point_of(2, 1, 4, 5), odd, [use], 0)
