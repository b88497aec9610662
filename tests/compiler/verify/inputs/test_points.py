from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import VerifyError
from compiler.ir.shapes.index_bounds import Limit
from compiler.verify.inputs.drawing import draw
from compiler.verify.inputs.points import Point, bytes_of, points, points_nearby
from compiler.verify.inputs.samples import fit, from_npz
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from tests.support import declared


def spec(text: str) -> TensorSpec:
    return declared.spec(text)


X = spec("x=float32[n,2*m]")


@given(
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 600)),
    st.integers(1, 16),
    st.integers(0, 5),
)
def test_every_point_is_admitted(low: int, extent: int | None, multiple: int, seed: int) -> None:
    high = None if extent is None else low + multiple + extent
    dim = Dim("n", low, high, multiple)
    for point in points([spec("x=int8[n]")], [dim], seed):
        assert dim.admits(point.dims["n"])


def test_min_opt_max_and_two_between() -> None:
    chosen = points([X], [Dim("n", 1, 64, opt=7), Dim("m", 8, 512, 8)], seed=0)
    by_label = {point.label: dict(point.dims) for point in chosen}
    assert by_label["min"] == {"m": 8, "n": 1}
    assert by_label["opt"]["n"] == 7
    assert by_label["max"] == {"m": 512, "n": 64}
    assert by_label["max-n"] == {"m": 8, "n": 64}
    assert by_label.keys() == {
        *("min", "opt", "max", "random-1", "random-2", "max-n", "max-m"),
        *("edge+1", "prime"),
    }


def test_points_lie_beside_the_edges_of_tiles_and_at_a_prime() -> None:
    chosen = points([X], [Dim("n", 1, 512), Dim("m", 1, 512)], seed=0, edges=(6, 32))
    by_label = {point.label: dict(point.dims) for point in chosen}
    for label, off in (("edge-1", -1), ("edge+1", 1)):
        assert (by_label[label]["m"] - off) % 6 == 0
        assert (by_label[label]["n"] - off) % 32 == 0
    assert by_label["prime"]["n"] > 31
    assert all(by_label["prime"]["n"] % factor for factor in range(2, by_label["prime"]["n"]))


def test_images_without_a_maximum_are_tried_at_the_sizes_of_real_ones() -> None:
    dims = [Dim("n"), Dim("h"), Dim("w")]
    sizes = {point.label: dict(point.dims) for point in points([spec("x=int8[n,3,h,w]")], dims, 0)}
    assert sizes["min-n"] == {"n": 1, "h": 640, "w": 640}
    assert sizes["max"]["h"] < 640


def test_points_come_cheapest_first_and_once() -> None:
    chosen = points([X], [Dim("n", 1, 3), Dim("m", 2, 2)], seed=0)
    sizes = [bytes_of(point, [X]) for point in chosen]
    assert sizes == sorted(set(sizes))
    assert len({tuple(point.dims.items()) for point in chosen}) == len(chosen) <= 3


def test_a_seed_decides() -> None:
    dims = [Dim("n", 1, 10_000), Dim("m", 1, 10_000)]
    assert points([X], dims, 1) == points([X], dims, 1) != points([X], dims, 2)


def test_no_dims_give_one_point() -> None:
    assert points([spec("x=float32[3]")], [], 0) == (Point("min", {}),)


def values(*dims: Dim) -> list[tuple[int, ...]]:
    inputs = [spec(f"x=float32[{','.join(dim.name for dim in dims)}]")]
    nearby = points_nearby(inputs, dims)
    sizes = [bytes_of(point, inputs) for point in nearby]
    assert sizes == sorted(sizes)
    assert all(dim.admits(point.dims[dim.name]) for dim in dims for point in nearby)
    return [tuple(point.dims[dim.name] for dim in dims) for point in nearby]


def test_slow_runs_stay_near_the_smallest_size_and_meet_the_ends() -> None:
    assert values(Dim("n", 1, 16)) == [(1,), (2,), (4,), (5,), (16,)]
    two = values(Dim("batch", 1, 8), Dim("seq", 1, 64))
    assert set(two) == {(1, 1), (2, 1), (1, 2), (8, 1), (4, 4), (5, 5), (1, 64), (8, 64)}
    images = values(Dim("n", 1, 2), Dim("h", 32, 96, 32), Dim("w", 32, 96, 32))
    assert set(images) == {
        (1, 32, 32),
        (2, 32, 32),
        (1, 64, 32),
        (1, 32, 64),
        (1, 96, 32),
        (1, 32, 96),
        (2, 96, 96),
    }


def test_slow_runs_try_the_size_that_is_asked_for() -> None:
    assert (9,) in values(Dim("n", 1, 64, opt=9))


def test_dims_of_no_input_are_not_chosen() -> None:
    assert all(
        point.dims.keys() == {"n"}
        for point in points([spec("x=float32[n]")], [Dim("n"), Dim("found", 1, 9)], 0)
    )


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_unbounded_dims_stay_affordable(count: int) -> None:
    names = [f"d{index}" for index in range(count)]
    largest = points([spec(f"x=float32[{','.join(names)}]")], [Dim(name) for name in names], 0)[-1]
    assert largest.label == "max"
    assert bytes_of(largest, [spec(f"x=float32[{','.join(names)}]")]) <= 4 << 19


def test_an_unbounded_dim_goes_beyond_its_minimum() -> None:
    assert points([spec("x=float32[n]")], [Dim("n", 3000)], 0)[-1].dims["n"] == 6000


POINT = Point("p", {"n": 40, "m": 9})


def test_masks_are_runs_of_ones() -> None:
    mask = draw(POINT, [spec("attention_mask=int64[n,m]")], {}, 0)["attention_mask"]
    assert set(np.unique(mask)) == {0, 1}
    assert mask[:, 0].all()
    assert (np.diff(mask, axis=1) <= 0).all()


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int32", "uint64", "float16", "float32", "float64", "bfloat16"],
)
def test_every_dtype_is_drawn(dtype: str) -> None:
    array = draw(POINT, [spec(f"x={dtype}[n,m]")], {}, 0)["x"]
    assert (array.dtype.name, array.shape) == (dtype, (40, 9))
    assert len(np.unique(array.astype(np.float64))) > 1


@pytest.mark.parametrize("text", ["x=float32[]", "mask=int64[]", "x=int32[0,m]", "x=bool[]"])
def test_scalars_and_empty_tensors(text: str) -> None:
    shape = tuple(axis.evaluate(POINT.dims) for axis in spec(text).shape)
    assert draw(POINT, [spec(text)], {}, 0)[spec(text).name].shape == shape


def save(folder: Path, **arrays: Any) -> Path:
    path = folder / "samples.npz"
    np.savez(path, **arrays)
    return path


INPUTS = [spec("ids=int64[b,s]"), spec("y=bfloat16[2*s]")]
DIMS = [Dim("b", 1, 4), Dim("s", 1, 8)]
GOOD = {"ids": np.zeros((2, 3), np.int64), "y": np.ones(6, np.uint16)}


def test_samples_bring_their_own_dims(tmp_path: Path) -> None:
    point, arrays = from_npz(save(tmp_path, **GOOD), INPUTS, DIMS)
    assert point == Point("sample", {"b": 2, "s": 3})
    assert arrays["y"].dtype.name == "bfloat16"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ids": np.zeros((2, 3), np.int32)}, "int32, the input is int64"),
        ({"ids": np.zeros(3, np.int64)}, "rank 1"),
        ({"ids": np.zeros((5, 3), np.int64)}, "b=5, allowed is 1 to 4"),
        ({"y": np.ones(7, np.uint16)}, "an axis of"),
        ({"ids": None}, "no array 'ids'"),
    ],
)
def test_samples_that_do_not_fit(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    arrays = {name: array for name, array in {**GOOD, **changed}.items() if array is not None}
    with pytest.raises(VerifyError, match=message) as caught:
        from_npz(save(tmp_path, **arrays), INPUTS, DIMS)
    assert (caught.value.code, caught.value.failure.field) == ("verify.bad_samples", "samples")


def test_samples_that_are_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(VerifyError, match=r"not an \.npz"):
        from_npz(path, INPUTS, DIMS)


def test_a_fixed_dim_leaves_the_extremes_of_the_others() -> None:
    dims = [Dim("a", 1, 8), Dim("b", 1, 8), Dim("c", 1, 8), Dim("d", 1, 8), Dim("e", 5, 5)]
    chosen = points([spec("x=int8[a,b,c,d,e]")], dims, 0)
    assert {"max-d", "min-a"} <= {point.label for point in chosen}


def test_a_sample_is_cut_and_repeated() -> None:
    sample = {
        "ids": np.array([[1, 2, 3], [4, 5, 6]]),
        "y": np.arange(6, dtype=np.float32),
        "z": np.array(5, np.float32),
    }
    inputs = [INPUTS[0], spec("y=float32[2*s]"), spec("z=float32[]")]
    shorter, longer = (fit(sample, Point("p", {"b": 1, "s": size}), inputs) for size in (1, 5))
    assert shorter.keys() == {"ids", "y", "z"}
    assert shorter["ids"].tolist() == [[1]]
    assert longer["ids"].tolist() == [[1, 2, 3, 1, 2]]
    assert shorter["y"].tolist() == [0, 1]
    assert longer["y"].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert longer["z"] == 5
    bounded = fit(sample, Point("p", {"b": 1, "s": 3}), inputs, {"ids": [Limit(0, 2)]})
    assert bounded["ids"].tolist() == [[1, 2, 2]]
    assert not fit({"y": np.zeros(0, np.float32)}, Point("p", {"s": 2}), inputs[1:2])


def test_masks_of_a_sample_do_not_serve_elsewhere() -> None:
    inputs = [spec("mask=int64[b,s]")]
    assert not fit({"mask": np.array([[0, 1]])}, Point("p", {"b": 1, "s": 1}), inputs)
