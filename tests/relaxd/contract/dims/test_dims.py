import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.dims.dims import Dim
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError


@st.composite
def dims(draw: st.DrawFn) -> Dim:
    multiple = draw(st.integers(1, 16))
    low = draw(st.integers(0, 200))
    high = draw(st.none() | st.integers(low + multiple, low + 500))
    dim = Dim("n", low, high, multiple)
    steps = 20 if dim.highest is None else (dim.highest - dim.lowest) // multiple
    opt = draw(st.none() | st.integers(0, steps).map(lambda step: dim.lowest + step * multiple))
    return Dim("n", low, high, multiple, opt)


@given(dims())
def test_round_trips(dim):
    assert Dim.of("n", dim.to_json()) == dim
    assert Dim.of("n", dim) == dim
    assert Dim.of("other", dim).name == "other"
    text = f"{dim.min}:{'' if dim.max is None else dim.max}%{dim.multiple}" + (
        "" if dim.opt is None else f"@{dim.opt}"
    )
    assert Dim.of("n", text) == dim
    spaced = f" {text.replace(':', ' : ').replace('%', ' % ').replace('@', ' @ ')} "
    assert Dim.of("n", spaced) == dim


def test_a_dim_that_is_read_already_stays_itself():
    dim = Dim("n", 1, 8)
    assert Dim.of("n", dim) is dim
    assert CompileRequest.of(dims={"n": dim}).dims[0] is dim


@given(dims(), st.integers(0, 1000))
def test_admits_what_lies_between_lowest_and_highest(dim, value):
    inside = dim.lowest <= value and (dim.highest is None or value <= dim.highest)
    assert dim.admits(value) == (inside and value % dim.multiple == 0)
    assert dim.admits(dim.lowest)
    assert dim.highest is None or dim.admits(dim.highest)


@pytest.mark.parametrize(
    ("value", "dim"),
    [
        (4, Dim("n", 4, 4)),
        ((1, 64), Dim("n", 1, 64)),
        ([1, None], Dim("n")),
        ("4", Dim("n", 4, 4)),
        ("1:64", Dim("n", 1, 64)),
        ("2:", Dim("n", 2)),
        ("8:512%8@128", Dim("n", 8, 512, 8, 128)),
        ("1:@7", Dim("n", 1, None, 1, 7)),
        ({}, Dim("n")),
        ({"max": 8}, Dim("n", 1, 8)),
    ],
)
def test_forms(value, dim):
    assert Dim.of("n", value) == dim


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        1.0,
        "",
        ":5",
        "a",
        "1:2:3",
        "1 2:5",
        "-1",
        "5:1",
        "1:3%4",
        "1:8@9",
        "1:8%0",
        "0:8%4@2",
        (1, 2, 3),
        ("1", 2),
        {"low": 1},
        {"min": None},
        {"min": True},
        {"min": 1.0},
        {"max": 0},
        {"min": -1},
        {"multiple": None},
        [],
        object(),
    ],
)
def test_what_is_no_dim(value):
    with pytest.raises(DeclarationError) as caught:
        Dim.of("n", value)
    assert caught.value.field == "dims.n"


@pytest.mark.parametrize("name", ["", " ", "n\n", "\0", "a\u202eb", "\ud800", "n" * 257])
def test_what_is_no_name(name):
    with pytest.raises(DeclarationError, match="a dim's name"):
        Dim(name)


@pytest.mark.parametrize("name", ["2n", "a b", "a-b", "é", "lambda", "1", "?", 'a"b', "n" * 256])
def test_any_other_text_is_a_name(name):
    assert Dim.of(name, "1:4") == Dim(name, 1, 4)


def test_in_words():
    assert Dim("n", 8, 512, 8).describe() == "8 to 512, a multiple of 8"
    assert Dim("n", 4, 4).describe() == "4"
    assert Dim("n").describe() == "1 to any"


def test_fixed():
    assert Dim("n", 4, 4).fixed
    assert Dim("n", 5, 9, 8).fixed
    assert not Dim("n", 1, 2).fixed
    assert not Dim("n").fixed


def test_a_favoured_size_outside_of_the_range_is_called_that():
    with pytest.raises(DeclarationError) as caught:
        Dim.of("batch", "1:4@9")
    assert caught.value.message == "dim 'batch': the favoured size 9 is outside its range, 1 to 4"
