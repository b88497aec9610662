from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import InputError
from relaxd.loader.tensors.binding import Binding
from tests.support import declared


def binding(*specs: str, dims: tuple[str, ...] = ()) -> Binding:
    return Binding(
        tuple(declared.spec(spec) for spec in specs), tuple(declared.dim(dim) for dim in dims)
    )


TEXT = binding(
    "ids=int64[batch,seq]",
    "mask=int64[batch,seq]",
    "past=float32[batch,4,2*past]",
    dims=("batch=1:8", "seq=8:512%8", "past=0:64"),
)


def text(batch=2, seq=16, past=6, mask=None) -> tuple[tuple[int, ...], ...]:
    return ((batch, seq), mask or (batch, seq), (batch, 4, past))


def test_dims_that_fit():
    assert TEXT.solve(text()) == {"batch": 2, "seq": 16, "past": 3}
    assert TEXT.solve(text(batch=8, seq=512, past=0)) == {"batch": 8, "seq": 512, "past": 0}


@pytest.mark.parametrize(
    ("shapes", "message", "details"),
    [
        (
            text(batch=9),
            "input 'ids': axis 0 (batch) has size 9; batch must be 1 to 8",
            {"dim": "batch", "value": 9, "axis": 0, "input": "ids"},
        ),
        (text(batch=0), "batch must be 1 to 8", {"value": 0, "allowed": "1 to 8"}),
        (
            text(seq=12),
            "axis 1 (seq) has size 12; seq must be 8 to 512, a multiple of 8",
            {"dim": "seq", "value": 12},
        ),
        (
            text(mask=(2, 8)),
            "input 'mask': axis 1 (seq) must be 16, where seq = 16; got 8",
            {"input": "mask", "dim": "seq", "value": 8, "allowed": "16"},
        ),
        (
            text(past=7),
            "input 'past': axis 2 (2 * past) must be 2 * past for a whole number past; got 7",
            {"input": "past", "dim": "past", "axis": 2},
        ),
        (
            text(past=130),
            "has size 130, so past = 65; past must be 0 to 64",
            {"dim": "past", "value": 65},
        ),
        (
            ((2, 16), (2, 16), (2, 5, 6)),
            "input 'past': axis 1 must be 4; got 5",
            {"value": 5, "allowed": "4"},
        ),
        (
            ((2,), (2, 16), (2, 4, 6)),
            "input 'ids' must be int64[batch,seq], with 2 axes; got 1 axis",
            {"input": "ids", "shape": [2]},
        ),
    ],
)
def test_the_error_names_input_axis_dim_value_and_range(shapes, message, details):
    with pytest.raises(InputError) as caught:
        TEXT.solve(shapes)
    assert message in str(caught.value)
    assert caught.value.details.items() >= details.items()


def test_an_expression_may_come_before_the_dims_it_needs():
    both = binding("a=float32[past+seq]", "b=float32[seq]", "c=float32[2*past]")
    assert both.solve(((7,), (3,), (8,))) == {"seq": 3, "past": 4}
    with pytest.raises(
        InputError,
        match=r"input 'c': axis 0 \(2 \* past\) must be 8, where past = 4; got 6",
    ):
        both.solve(((7,), (3,), (6,)))


def test_an_axis_that_decides_no_dim_is_checked_once_its_dims_are_known():
    halved = binding("a=float32[n//2]", "b=float32[n]")
    assert halved.solve(((2,), (5,))) == {"n": 5}
    with pytest.raises(InputError, match="must be 2, where n = 5; got 3"):
        halved.solve(((3,), (5,)))
    assert binding("a=float32[n//2]").solve(((3,),)) == {}
    assert binding("a=float32[n+m]").solve(((3,),)) == {}


def test_an_axis_without_a_size():
    divided = binding("a=float32[n,m]", "b=float32[n//m]", dims=("m=0:",))
    assert divided.solve(((6, 2), (3,))) == {"n": 6, "m": 2}
    with pytest.raises(InputError, match=r"input 'b': axis 0 .* divides by 0 where m = 0, n = 6"):
        divided.solve(((6, 0), (3,)))


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 9), st.integers(0, 9))
def test_what_an_expression_evaluates_to_solves_to_the_same_dims(n, m, factor, offset):
    dims = ("n=0:", "m=0:")
    checked = binding(f"a=float32[{factor}*n+{offset}]", "b=float32[n+m,m]", dims=dims)
    assert checked.solve(((factor * n + offset,), (n + m, m))) == {"n": n, "m": m}


@given(st.integers(0, 40), st.integers(0, 10), st.integers(1, 20), st.integers(1, 4))
def test_a_range_admits_what_it_says(size, low, width, multiple):
    dim = Dim("n", low, low + width * multiple, multiple)
    checked = Binding((TensorSpec.of("a", "float32[n]"),), (dim,))
    if low <= size <= low + width * multiple and size % multiple == 0:
        assert checked.solve(((size,),)) == {"n": size}
    else:
        with pytest.raises(InputError):
            checked.solve(((size,),))


def test_names():
    one = binding("a=float32[n]", "b=float32[n]")
    array = np.zeros(2, "float32")
    with pytest.raises(InputError, match="no input 'c'") as caught:
        one.arrays({"a": array, "b": array, "c": array})
    assert "a=float32[n], b=float32[n]" in caught.value.hint
    with pytest.raises(InputError, match="missing input 'b'"):
        one.arrays({"a": array})
    assert [a is array for a in one.arrays({"b": array, "a": array})] == [True, True]


@pytest.mark.parametrize(
    "value", [np.zeros(2), [0.0, 1.0], np.zeros(2, "float16"), np.array(["a"]), 3]
)
def test_no_dtype_is_cast(value):
    with pytest.raises(InputError, match="must be float32, got ") as caught:
        binding("a=float32[n]").arrays({"a": value})
    assert caught.value.details["expected"] == "float32"


def test_what_is_no_array_becomes_one():
    (array,) = binding("flags=bool[n]").arrays({"flags": [True, False]})
    assert np.asarray(array).tolist() == [True, False]
    (array,) = binding("x=float32[]").arrays({"x": np.float32(2)})
    assert array.shape == ()


def test_shapes_that_passed_still_have_their_names_and_dtypes_checked():
    one = binding("a=float32[n]", dims=("n=1:4",))
    for _ in range(2):
        one.arrays({"a": np.zeros(3, "float32")})
        with pytest.raises(InputError, match="must be 1 to 4"):
            one.arrays({"a": np.zeros(5, "float32")})
        with pytest.raises(InputError, match="float64"):
            one.arrays({"a": np.zeros(3)})


@pytest.mark.parametrize(
    ("verified", "counted"),
    [
        ({}, 0),
        ({"n": 8, "m": 640}, 2),
        ({"n": 3, "m": 640}, 3),
        ({"m": 2000}, 0),
        ({"n": 8, "m": 999}, 2),
        ({"n": 8, "m": 1000}, 0),
        ({"other": 1}, 0),
    ],
)
def test_calls_beyond_what_was_verified_are_counted(verified, counted):
    specs = tuple(declared.spec(text) for text in ("a=float32[n]", "b=float32[2*m]"))
    checked = Binding(specs, (declared.dim("n=1:8"), declared.dim("m=1:")), verified)
    for n, m in ((1, 640), (4, 1000), (8, 640), (4, 1000)):
        checked.arrays({"a": np.zeros(n, "float32"), "b": np.zeros(2 * m, "float32")})
    assert checked.unverified_runs == counted


def test_a_refused_call_is_not_counted():
    checked = Binding((declared.spec("a=float32[n]"),), (declared.dim("n=1:8"),), {"n": 4})
    with pytest.raises(InputError):
        checked.arrays({"a": np.zeros(9, "float32")})
    assert checked.unverified_runs == 0


def test_shapes_that_are_too_many_to_remember_are_counted(monkeypatch):
    monkeypatch.setattr("relaxd.loader.tensors.binding._REMEMBERED_SHAPES", 1)
    checked = Binding((declared.spec("a=float32[n]"),), (declared.dim("n=1:"),), {"n": 4})
    for size in (4, 5, 6, 5, 6, 4):
        checked.arrays({"a": np.zeros(size, "float32")})
    assert checked.unverified_runs == 4


def test_threads_count_in_parallel():
    checked = Binding((declared.spec("a=float32[n]"),), (declared.dim("n=1:"),), {"n": 4})
    array = np.zeros(5, "float32")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: checked.arrays({"a": array}), range(2000)))
    assert checked.unverified_runs == 2000


def test_inputs_that_calls_share_are_checked_once_and_decide_dims_of_the_others():
    specs = tuple(map(declared.spec, ("x=float32[n,m]", "cache=float32[n,c]")))
    dims = tuple(map(declared.dim, ("n=1:8", "m=1:9", "c=1:7")))
    model = Binding(specs, dims, {"n": 8, "m": 2, "c": 8})
    with pytest.raises(InputError, match="has size 9; n must be"):
        model.beside({"cache": np.zeros((9, 5), np.float32)})
    cache = np.zeros((3, 5), np.float32)
    retained, others = model.beside({"cache": cache})
    assert list(retained) == ["cache"]
    assert retained["cache"] is cache
    x = np.zeros((3, 5), np.float32)
    assert others.arrays({"x": x})[0] is x
    assert (others.unverified_runs, model.unverified_runs) == (1, 1)
    with pytest.raises(InputError, match=r"axis 0 .* must be 3, .*; got 2"):
        others.arrays({"x": np.zeros((2, 5), np.float32)})
    with pytest.raises(InputError, match="no input 'cache'"):
        others.arrays({"x": x, "cache": cache})


def test_axes_of_two_unknown_dims_are_checked_once_a_call_decides_one():
    model = binding("x=float32[n,m]", "both=float32[n+k,m+k]", dims=("n=1:8", "m=1:9", "k=1:9"))
    _, others = model.beside({"both": np.zeros((4, 6), np.float32)})
    others.arrays({"x": np.zeros((3, 5), np.float32)})
    with pytest.raises(InputError, match=r"input 'both': axis 1 .* must be 5, .*; got 6"):
        others.arrays({"x": np.zeros((3, 4), np.float32)})


def test_an_input_with_a_default_may_be_left_out():
    specs = (declared.spec("x=float32[n]"), TensorSpec("seed", "int64", (), default=3))
    result = Binding(specs, (declared.dim("n=1:8"),))
    x = np.zeros(2, np.float32)
    assert [np.asarray(array).tolist() for array in result.arrays({"x": x})] == [[0, 0], 3]
    assert result.arrays({"x": x, "seed": np.array(5)})[1] == 5
    with pytest.raises(InputError, match="missing input 'x'"):
        result.arrays({"seed": np.array(5)})
    with pytest.raises(InputError, match="no input 'sed'"):
        result.arrays({"x": x, "sed": np.array(5)})
