import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.dims.axes import Axis, axes_of
from relaxd.errors import DeclarationError

NAMES = st.sampled_from(["n", "m", "batch", "min", "max"])
LEAVES = st.integers(0, 50).map(str) | NAMES


def combine(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    infix = st.tuples(parts, st.sampled_from("+-*"), parts).map(lambda t: f"({t[0]}{t[1]}{t[2]})")
    divided = st.tuples(parts, st.sampled_from(["//", "%"]), st.integers(1, 9)).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    )
    called = st.tuples(st.sampled_from(["min", "max"]), parts, parts).map(
        lambda t: f"{t[0]}({t[1]}, {t[2]})"
    )
    return infix | divided | called


EXPRESSIONS = st.recursive(LEAVES, combine, max_leaves=6)
VALUES = st.fixed_dictionaries(
    {name: st.integers(0, 100) for name in ("n", "m", "batch", "min", "max")}
)


def meaning(text: str, values: dict[str, int]) -> int:
    """Evaluate in Python, with the functions out of the way of dims called min and max."""
    renamed = text.replace("min(", "least(").replace("max(", "most(")
    return eval(renamed, {"__builtins__": {}, "least": min, "most": max}, dict(values))


def axis_or_none(text: str) -> Axis | None:
    try:
        return Axis(text)
    except DeclarationError:
        return None


@given(EXPRESSIONS, VALUES)
def test_an_axis_means_what_it_says(text, values):
    axis = axis_or_none(text)
    if axis is None:
        assert meaning(text, values) < 0
        return
    assert axis.evaluate(values) == meaning(text, values)
    assert axis.dims <= values.keys()
    assert (axis.size is None) == bool(axis.dims)


@given(EXPRESSIONS)
def test_text_is_canonical(text):
    axis = axis_or_none(text)
    if axis is not None:
        assert Axis(axis.text) == axis
        assert Axis(f" {axis.text} ") == axis
        assert pickle.loads(pickle.dumps(axis)) == axis


@given(EXPRESSIONS)
def test_what_was_written_is_read_as_it_is(text):
    axis = axis_or_none(text)
    if axis is not None:
        read = Axis.parse(axis.text)
        assert (read, read.dims, read.size) == (axis, axis.dims, axis.size)


@pytest.mark.parametrize(
    "text",
    [
        *("", "n//0", "n%(2-2)", "0-1", "n.x", "f(n, 1)", "max(n)", "max(n, m=1)", "max(*n)"),
        *("min(1, n+)", "+n", "~n", "n**2", "n/2", "1.5", "'n'", "max(n, 1//0)", "[n]", "True"),
        *("n if m else 1", "\xe9"),
    ],
)
def test_what_is_no_axis_is_refused_however_it_is_read(text):
    for read in (Axis, Axis.parse):
        with pytest.raises(DeclarationError):
            read(text)


@given(EXPRESSIONS, VALUES, st.sampled_from(["n", "m", "batch", "max"]))
def test_a_solution_is_exact_and_the_only_one(text, values, unknown):
    axis = axis_or_none(text)
    if axis is None:
        return
    bindings = {name: value for name, value in values.items() if name != unknown}
    size = axis.evaluate(values)
    solved = axis.solve(size, bindings)
    if unknown not in axis.dims:
        assert solved is None
    elif solved is not None:
        assert solved == (unknown, values[unknown])
        assert all(
            axis.evaluate({**values, unknown: other}) != size
            for other in range(120)
            if other != values[unknown]
        )


@pytest.mark.parametrize(
    ("text", "size", "bindings", "solution"),
    [
        ("n", 5, {}, ("n", 5)),
        ("2*n", 6, {}, ("n", 3)),
        ("2*n", 7, {}, None),
        ("10-n", 7, {}, ("n", 3)),
        ("n+m", 7, {"m": 3}, ("n", 4)),
        ("n+m", 7, {}, None),
        ("n*m", 8, {"m": 4}, ("n", 2)),
        ("n*m", 0, {"m": 0}, None),
        ("n*n", 4, {}, None),
        ("n-n+3", 3, {}, None),
        ("min(n,2000)", 5000, {}, None),
        ("n%2000", 5, {}, None),
        ("n+m%3", 5, {"m": 4}, ("n", 4)),
        ("n*(6//m)", 6, {"m": 0}, None),
        ("4", 4, {}, None),
        ("max", 4, {}, ("max", 4)),
        ("2*max(m,3)+n", 10, {"m": 4}, ("n", 2)),
    ],
)
def test_solve(text, size, bindings, solution):
    assert Axis(text).solve(size, bindings) == solution


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "a b",
        "n/2",
        "n**2",
        "n if m else 1",
        "f(n)",
        "n.real",
        "n[0]",
        "'n'",
        "1.5",
        "True",
        "None",
        "lambda",
        "min(n)",
        "max(*n, m)",
        "min(n, m, key=n)",
        "é",
        "-1",
        "3-5",
        "n//0",
        "n%(2-2)",
        "4//0",
        "~n",
        "not n",
        "n<m",
        "n\x00",
        "n,m",
        "(n",
        "+" * 5000 + "n",
        "-" * 900 + "n",
        "9" * 5000,
        "(" * 300,
        '"',
        '""',
        '" "',
        '"a" "b"',
        'n"m"',
        '"n"2',
        '"min"(n, m)',
        '"a\nb"',
        '"a\\nb"',
        f'"{"n" * 257}"',
        "n # m",
        "n\\",
    ],
)
def test_what_is_no_axis(text):
    with pytest.raises(DeclarationError) as caught:
        Axis(text)
    assert caught.value.field == "axis"
    assert caught.value.hint


def test_symbol_and_size():
    assert [Axis(text).symbol for text in ("seq", "2*seq", "4", "max")] == [
        "seq",
        None,
        None,
        "max",
    ]
    assert [Axis(text).size for text in ("seq", "2*3", "0")] == [None, 6, 0]


@pytest.mark.parametrize(
    ("text", "canonical", "dims"),
    [
        ('2*"seq-len"+1', '2 * "seq-len" + 1', {"seq-len"}),
        ('"seq"', "seq", {"seq"}),
        ('( "1" )', '"1"', {"1"}),
        ('min("a,b",2,"in")', 'min("a,b", 2, "in")', {"a,b", "in"}),
        (r'"a\"b\\" - n', r'"a\"b\\" - n', {'a"b\\', "n"}),
        ('"批次"*"長さ"', '"批次" * "長さ"', {"批次", "長さ"}),
        ('"ﬁ"+"fi"', '"ﬁ" + fi', {"ﬁ", "fi"}),
        ('"λ0"-"a"', '"λ0" - a', {"λ0", "a"}),
    ],
)
def test_names_of_other_characters_stand_in_quotes(text, canonical, dims):
    axis = Axis(text)
    assert (axis.text, axis.dims) == (canonical, dims)
    assert Axis(canonical) == axis
    assert Axis.parse(text).dims == dims


def test_an_axis_in_quotes_is_the_dim():
    for name in ("seq-len", "1", "in", 'a"b', "seq", "a b"):
        assert (Axis.of_dim(name).symbol, Axis.of_dim(name).size) == (name, None)
        assert Axis.of_dim(name).solve(7, {}) == (name, 7)
        assert Axis(f"2*{Axis.of_dim(name)}").solve(14, {}) == (name, 7)
    assert Axis('"1"+1').evaluate({"1": 5}) == 6
    assert Axis('"1"+"2"').symbol is None


def test_an_unbound_dim_is_named():
    with pytest.raises(KeyError, match="m"):
        Axis("n+m").evaluate({"n": 1})


def test_axes_of_names_the_field():
    assert axes_of(["n", 4], "shapes.boxes") == (Axis("n"), Axis("4"))
    with pytest.raises(DeclarationError) as caught:
        axes_of(["n", "n/2"], "shapes.boxes")
    assert caught.value.field == "shapes.boxes"


@pytest.mark.parametrize("text", ["n", "_x1", "0", "7", "9223372036854775807"])
def test_a_dim_or_a_size_is_its_own_canonical_form(text):
    assert (Axis(text).text, Axis(f" ({text})").text) == (text, text)
    assert Axis(text) == Axis(f"({text})")
    assert Axis(text).dims == (frozenset() if text.isdigit() else {text})


@pytest.mark.parametrize("text", ["None", "lambda", "07", "n" * 2001, "9" * 5000])
def test_what_only_looks_like_a_dim_or_a_size_is_refused(text):
    with pytest.raises(DeclarationError):
        Axis(text)
