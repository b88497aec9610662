"""Inputs drawn within what their uses allow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.ir.shapes.index_bounds import Limit, collect
from compiler.verify.inputs import array_file
from compiler.verify.inputs.drawing import draw, objection, within
from compiler.verify.inputs.inputs import Signature, prepare
from compiler.verify.inputs.points import Point
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from tests.support import declared

N = Axis("n")
LAST = Axis("n - 1")


def draw_values(text: str, *limits: Limit, **dims: int) -> np.ndarray:
    spec = declared.spec(text)
    return draw(Point("p", dims), [spec], {spec.name: limits}, 0)[spec.name]


def test_integers_that_index_stay_within_bounds() -> None:
    array = draw_values("ids=int64[n,9]", Limit(-3, 5), n=40)
    assert (array.dtype, array.min(), array.max()) == (np.int64, -3, 5)


def test_bounds_follow_the_dims_of_the_point() -> None:
    array = draw_values("ids=int64[m]", Limit(0, LAST), Limit(0, 60), m=999, n=50)
    assert (array.min(), array.max()) == (0, 49)
    assert draw_values("ids=int64[m]", Limit(0, LAST), m=9, n=1).tolist() == [0] * 9


def test_usual_values_are_drawn_where_no_use_demands_others() -> None:
    usual, size = Limit(-9, 9, usual=True), Limit(0, 9, usual=True)
    array = draw_values("k=int64[m]", usual, m=999)
    assert (array.min(), array.max()) == (-9, 9)
    assert draw_values("k=int64[m]", usual, size, m=999).min() == 0
    assert draw_values("k=int64[m]", usual, Limit(20, 30), m=999).min() == 20
    assert (
        draw_values("k=float32[m]", usual, m=9).tolist()
        == draw_values("k=float32[m]", m=9).tolist()
    )
    sample = np.array([224])
    assert within(sample, Point("p", {}), [usual]).tolist() == [224]


@pytest.mark.parametrize(("label", "ends"), [("negative", (-9, -1)), ("zero", (0, 0))])
def test_integers_of_either_sign_are_negative_and_zero_on_purpose(
    label: str, ends: tuple[int, int]
) -> None:
    spec, point = declared.spec("k=int64[999]"), Point(label, {})
    signed, size = Limit(-9, 9, usual=True), Limit(0, 9, usual=True)
    array = draw(point, [spec], {"k": [signed]}, 0)["k"]
    assert (array.min(), array.max()) == ends
    array = draw(point, [spec], {"k": [signed, size]}, 0)["k"]
    assert (array.min(), array.max()) == (0, 9)
    delta = declared.spec("k=int64[]")
    array = draw(point, [delta], {"k": [Limit(-9, 9, usual=True, nonzero=True)]}, 0)["k"]
    assert array.shape == ()
    assert array != 0


def test_indices_count_from_the_end_where_every_use_allows_it() -> None:
    array = draw_values("ids=int64[m]", Limit(0, LAST, from_end=True), m=999, n=8)
    assert array.min() == -8
    assert array.max() == 7
    assert 0.01 < (array < 0).mean() < 0.2
    both = (Limit(0, LAST, from_end=True), Limit(0, LAST))
    assert draw_values("ids=int64[m]", *both, m=999, n=8).min() == 0


def test_where_the_least_extent_leaves_nothing_to_index_the_first_is_drawn() -> None:
    assert draw_values("ids=int64[m]", Limit(0, -1), m=4).tolist() == [0] * 4


def test_a_point_at_which_nothing_can_be_indexed_is_left_out() -> None:
    ids = declared.spec("ids=int64[m]")
    limits = {"ids": [Limit(0, LAST)]}
    assert "'ids'" in str(objection(Point("p", {"m": 2, "n": 0}), [ids], limits))
    assert objection(Point("p", {"m": 0, "n": 0}), [ids], limits) is None
    assert objection(Point("p", {"m": 2, "n": 1}), [ids], limits) is None


def test_coordinates_have_bounds_of_their_own() -> None:
    limits = (Limit(0, LAST, coordinate=0), Limit(0, 2, coordinate=1))
    array = draw_values("ids=int64[500,2]", *limits, n=40)
    assert array.max(axis=0).tolist() == [39, 2]


def test_scattered_indices_differ() -> None:
    rows = draw_values("ids=int64[7,5]", Limit(0, LAST, distinct=0), n=9)
    assert all(len(set(column)) == 7 for column in rows.T)
    assert rows.max() <= 8
    pairs = (Limit(0, LAST, 0, distinct=1), Limit(0, 4, 1, distinct=1))
    array = draw_values("ids=int64[12,2]", *pairs, n=3)
    assert len({tuple(row) for row in array}) == 12
    assert array.max(axis=0).tolist() == [2, 4]


def test_more_indices_than_elements_repeat() -> None:
    assert draw_values("ids=int64[7]", Limit(0, LAST, distinct=0), n=3).max() <= 2


def test_sizes_add_up() -> None:
    sizes = draw_values("sizes=int64[3]", Limit(0, N, total=N), n=11)
    assert sizes.sum() == 11
    assert sizes.min() >= 0
    assert draw_values("sizes=int64[1]", Limit(0, N, total=N), n=11).tolist() == [11]


def test_factors_multiply_up() -> None:
    for count in (0, 1, 2, 360, 997):
        sizes = draw_values("to=int64[3]", Limit(1, N, elements=N), n=count)
        assert sizes.prod() == count
    assert draw_values("to=int64[0]", Limit(1, N, elements=N), n=1).size == 0


def test_more_values_than_are_legal_leave_a_point_out() -> None:
    keep, limits = declared.spec("keep=bool[m]"), {"keep": [Limit(0, 1, length=N)]}
    assert "4 are legal" in str(objection(Point("p", {"m": 5, "n": 4}), [keep], limits))
    assert objection(Point("p", {"m": 4, "n": 4}), [keep], limits) is None
    values = draw_values("keep=bool[m]", Limit(0, 1, length=N), m=50, n=60)
    assert (values.dtype, set(values)) == (np.bool_, {False, True})


def test_dims_that_no_input_carries_leave_the_first() -> None:
    assert draw_values("ids=int64[m]", Limit(0, LAST), m=5).tolist() == [0] * 5


def test_corners_of_regions_are_in_order() -> None:
    first, last = (
        [Limit(0, Axis("n // 2"), axis, scale=4.0, integral=False) for axis in (0, 1)],
        [Limit(Axis("n // 2"), N, axis, scale=4.0, integral=False) for axis in (2, 3)],
    )
    rois = draw_values("rois=float32[50,4]", *first, *last, n=10)
    assert (rois[:, :2] <= rois[:, 2:]).all()
    assert 20 < rois.max() <= 40
    assert (rois % 1).any()


def test_the_image_of_a_region_is_a_whole_number() -> None:
    limits = [Limit(0, LAST, 0), *(Limit(0, 9, axis, integral=False) for axis in range(1, 5))]
    rois = draw_values("rois=float32[50,5]", *limits, n=3)
    assert set(rois[:, 0]) == {0, 1, 2}
    assert (rois[:, 1:] % 1).any()


def test_samples_are_brought_within_the_bounds_of_a_point() -> None:
    array = np.array([[0, 5], [9, -1]])
    limits = (Limit(0, LAST, coordinate=0), Limit(0, 3, coordinate=1))
    assert within(array, Point("p", {"n": 3}), limits).tolist() == [[0, 3], [2, 0]]


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32"])
def test_limited_values_keep_their_dtype(dtype: str) -> None:
    assert draw_values(f"x={dtype}[5]", Limit(1, 4)).dtype == dtype


def test_a_seed_decides() -> None:
    spec = declared.spec("ids=int64[n]")
    point, limits = Point("p", {"n": 30}), {"ids": [Limit(0, 99)]}
    first, again, unlike = (draw(point, [spec], limits, seed)["ids"] for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != unlike).any()


def test_limits_are_collected_by_input_each_once() -> None:
    uses = [("a", Limit(0, 3)), ("b", Limit(0, 1)), ("a", Limit(0, 3)), (None, Limit(0, 2))]
    assert collect(uses, {"a"}) == {"a": (Limit(0, 3),)}


def test_points_at_which_integers_are_negative_and_zero(tmp_path: Path) -> None:
    k, x = declared.spec("k=int64[]"), declared.spec("x=float32[n]")
    n = Dim("n", 1, 9)
    signed = Signature((k, x), (), (n,), {"k": [Limit(-9, 9, usual=True)]})
    trials = prepare(signed, None, 0, tmp_path, 1 << 20).chosen
    values = {trial.point.label: int(array_file.read(trial.inputs)["k"]) for trial in trials}
    assert values["zero"] == 0
    assert -9 <= values["negative"] < 0
    usual = replace(signed, bounds={"k": [Limit(0, 9, usual=True)]})
    labels = {trial.point.label for trial in prepare(usual, None, 0, tmp_path, 1 << 20).chosen}
    assert not labels & {"zero", "negative"}
