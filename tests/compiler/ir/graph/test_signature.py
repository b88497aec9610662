"""Inputs as the file declares them, redeclared by the request."""

from typing import Any

import pytest

from compiler.errors import ImportFailed
from compiler.ir.graph.signature import FileInput, check_names, declare, identifier, specs_of
from compiler.ir.shapes.facts import Facts
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest


def spec_of(file: FileInput, request: CompileRequest) -> TensorSpec:
    (spec,) = specs_of([file], request)
    return spec


def texts_of(*files: FileInput, **declared: Any) -> list[list[str]]:
    """The axes of each input."""
    specs = specs_of(list(files), CompileRequest.of(**declared))
    return [[axis.text for axis in spec.shape] for spec in specs]


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        (3, "3"),
        (0, "x_0"),
        (-1, "x_0"),
        (None, "x_0"),
        ("?", "x_0"),
        ("", "x_0"),
        (" None ", "x_0"),
        ("batch", "batch"),
        ("2*seq", '"2*seq"'),
        ("past + seq", '"past + seq"'),
        ("DynamicDimension.0", '"DynamicDimension.0"'),
        ("1st", '"1st"'),
        ("1", '"1"'),
        ("batch-size", '"batch-size"'),
        ("批次", '"批次"'),
        ("in", '"in"'),
        ("floor(s0/2)", '"floor(s0/2)"'),
        ('"seq"', r'"\"seq\""'),
        ("batch # rows", '"batch # rows"'),
        ("seq ", '"seq "'),
    ],
)
def test_an_axis_has_the_name_that_the_file_gives_it(axis: int | str | None, text: str) -> None:
    assert texts_of(FileInput("x", "float32", (axis,))) == [[text]]


@pytest.mark.parametrize(
    ("axes", "texts"),
    [
        (("seq", "2*seq"), ["seq", "2 * seq"]),
        (("s0 + 1", "s0"), ["s0 + 1", "s0"]),
        (("s77*s5", "s77", "s5"), ["s77 * s5", "s77", "s5"]),
        (("s77*s5", "s77"), ['"s77*s5"', "s77"]),
        (("batch-size", "batch", "size"), ["batch - size", "batch", "size"]),
        (("max(past, seq)", "past", "seq"), ["max(past, seq)", "past", "seq"]),
        (("1", "1 + 1"), ['"1"', '"1 + 1"']),
        (("a-b", "a-b-c", "c"), ['"a-b"', '"a-b-c"', "c"]),
        (('2*"a.b"', "a.b"), ['2 * "a.b"', '"a.b"']),
    ],
)
def test_an_expression_is_one_of_dims_that_stand_alone(
    axes: tuple[str, ...], texts: list[str]
) -> None:
    assert texts_of(FileInput("x", "float32", axes)) == [texts]
    parts = [FileInput(f"x{i}", "float32", (axis,)) for i, axis in enumerate(axes)]
    assert texts_of(*parts) == [[text] for text in texts]


def test_declarations_make_dims_of_expressions() -> None:
    x, y = FileInput("x", "float32", ("2*seq",)), FileInput("y", "float32", ("?",))
    assert texts_of(x, dims={"seq": "1:4"}) == [["2 * seq"]]
    assert texts_of(x, y, inputs={"y": "float32[seq]"}) == [["2 * seq"], ["seq"]]
    assert texts_of(x, y, inputs={"y": "float32[seq+1]"}) == [['"2*seq"'], ["seq + 1"]]


def test_a_name_that_no_dim_can_have_asks_for_another() -> None:
    for name in ("a\nb", "n" * 257):
        with pytest.raises(ImportFailed, match="axis 0 of input 'x'") as caught:
            texts_of(FileInput("x", "float32", (name,)))
        assert caught.value.code == "import.dim_name"
        assert "--input" in (caught.value.hint or "")
        named = texts_of(FileInput("x", "float32", (name,)), inputs={"x": "float32[n]"})
        assert named == [["n"]]


def test_two_anonymous_axes_are_never_one() -> None:
    assert texts_of(FileInput("x", "float32", ("?", "?"))) == [["x_0", "x_1"]]
    assert identifier("a b-c") == "a_b_c"
    assert identifier("") == "_"


def test_an_anonymous_axis_takes_no_name_that_is_there() -> None:
    files = [FileInput(name, "float32", ("?",)) for name in ("a.b", "a_b", "a-b")]
    named = FileInput("x", "float32", ("a_b_0_1",))
    assert texts_of(*files, named) == [["a_b_0"], ["a_b_0_2"], ["a_b_0_3"], ["a_b_0_1"]]
    assert texts_of(files[0], shapes={"y": "[a_b_0]"}) == [["a_b_0_1"]]


@pytest.mark.parametrize(
    ("axes", "declared", "code"),
    [
        ((None, 3), "float16[n,3]", "import.input_dtype"),
        ((None, 3), "float32[n]", "import.input_rank"),
        ((None, 3), "float32[n,4]", "import.input_shape"),
    ],
)
def test_a_redeclaration_may_not_contradict_the_file(
    axes: tuple[int | None, ...], declared: str, code: str
) -> None:
    with pytest.raises(ImportFailed) as caught:
        spec_of(FileInput("x", "float32", axes), CompileRequest.of(inputs={"x": declared}))
    assert (caught.value.code, caught.value.failure.field) == (code, "inputs.x")


def test_a_fixed_axis_may_be_named_and_a_named_one_fixed() -> None:
    request = CompileRequest.of(inputs={"x": "float32[2,c]"})
    spec = spec_of(FileInput("x", "float32", ("n", 3)), request)
    assert [axis.text for axis in spec.shape] == ["2", "c"]


def test_a_rank_that_nobody_declares_is_asked_for() -> None:
    with pytest.raises(ImportFailed) as caught:
        spec_of(FileInput("x", "float32", None), CompileRequest.of())
    assert caught.value.code == "import.input_rank"
    assert '--input "x=float32[n,...]"' in (caught.value.hint or "")


def test_a_dim_that_the_model_does_not_have_is_refused_with_those_it_has() -> None:
    request = CompileRequest.of(dims={"bach": (1, 4)})
    spec = spec_of(FileInput("x", "float32", ("batch", "2*seq")), request)
    with pytest.raises(ImportFailed, match="no dim 'bach'") as caught:
        declare(Facts(), [spec], request)
    assert caught.value.hint == 'did you mean batch? its dims are "2*seq", batch'


def test_extents_follow_the_declared_ranges() -> None:
    request = CompileRequest.of(dims={"batch": (1, 4), "seq": 8})
    spec = spec_of(FileInput("x", "float32", ("batch", "2*seq")), request)
    facts = Facts()
    ((batch, double),) = declare(facts, [spec], request)
    assert facts.bounds(batch) == (1, 4)
    assert double == 16


def test_declarations_of_inputs_that_are_not_there() -> None:
    check_names("consts", ["sr"], ["sr", "x"])
    with pytest.raises(ImportFailed, match="no input 'rate'") as caught:
        check_names("consts", ["sr", "rate"], ["sr", "x"])
    assert caught.value.failure.field == "consts.rate"
