"""Inputs as the file declares them, redeclared by the request."""

import pytest

from compiler.errors import ImportFailed
from compiler.ir.facts import Facts
from compiler.ir.signature import (
    FileInput,
    axis_from_file,
    check_names,
    declare,
    identifier,
    spec_of,
)
from relaxd.contract.request import CompileRequest


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        (3, "3"),
        (0, "x_1"),
        (-1, "x_1"),
        (None, "x_1"),
        ("?", "x_1"),
        ("", "x_1"),
        (" None ", "x_1"),
        ("batch", "batch"),
        ("2*seq", "2*seq"),
        ("DynamicDimension.0", "DynamicDimension_0"),
        ("past + seq", "past+seq"),
        ("1st", "_1st"),
    ],
)
def test_every_spelling_of_an_axis_has_a_name(axis: int | str | None, text: str) -> None:
    assert axis_from_file("x", 1, axis).text.replace(" ", "") == text


def test_two_anonymous_axes_are_never_one() -> None:
    spec = spec_of(FileInput("x", "float32", ("?", "?")), CompileRequest.of())
    assert [axis.text for axis in spec.shape] == ["x_0", "x_1"]
    assert identifier("a b-c") == "a_b_c"
    assert identifier("") == "_"


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
    assert caught.value.hint == "its dims are batch, seq"


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
