"""Options are typed, and unknown ones are refused with those that are known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.options import CompileOptions
from relaxd.errors import DeclarationError

TOLERANCE = st.none() | st.floats(0, 10) | st.integers(0, 10)


@given(
    verify=st.booleans(),
    profile=st.booleans(),
    rtol=TOLERANCE,
    atol=TOLERANCE,
    seed=st.integers(0, 2**31),
)
def test_there_and_back(**values: Any) -> None:
    options = CompileOptions(**values)
    assert CompileOptions.from_json(options.to_json()) == options
    assert values.items() <= options.to_json().items()


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("verify", 1, "true or false"),
        ("verify", "yes", "true or false"),
        ("profile", None, "true, false or an object"),
        ("rtol", "1e-3", "a number"),
        ("rtol", True, "a number"),
        ("rtol", -1e-9, "at least 0"),
        ("atol", float("inf"), "at least 0"),
        ("atol", float("nan"), "at least 0"),
        ("seed", 1.0, "an integer"),
        ("seed", False, "an integer"),
    ],
)
def test_a_value_of_another_kind(name: str, value: Any, what: str) -> None:
    with pytest.raises(DeclarationError, match=what) as caught:
        CompileOptions(**{name: value})
    assert caught.value.field == f"options.{name}"


def test_an_unknown_option_names_those_known() -> None:
    with pytest.raises(DeclarationError, match="unknown option 'verfiy'") as caught:
        CompileOptions.from_json({"verfiy": True})
    assert caught.value.field == "options.verfiy"
    assert "profile" in (caught.value.hint or "")


def test_every_field_counts_in_an_identity() -> None:
    """Options that were left out stand in the document as defaults."""
    assert CompileOptions().to_json().keys() == CompileOptions.__dataclass_fields__.keys()
