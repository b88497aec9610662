"""Names of dims in axis expressions, options and identifiers."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relaxd.contract.dims import names
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.names import identifier_of, name_of, option_name, quote_name, unquote_name
from relaxd.contract.dims.tensors import TensorSpec

usable = st.text(min_size=1, max_size=40).filter(lambda name: names.objection_to(name) is None)
in_plain_letters = st.text("ab_d-.im5f", min_size=1)


@given(usable | in_plain_letters)
@example("dim__x")
@example("dim___2d_")
@example("in")
def test_an_identifier_stands_for_one_name(name: str) -> None:
    identifier = identifier_of(name)
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", identifier)
    assert name_of(identifier) == name
    assert names.with_names(f"({identifier} + 1)") == f"({quote_name(name)} + 1)"


@pytest.mark.parametrize("name", ["batch", "_x1", "N", "max", "dim", "dim_0"])
def test_a_plain_name_is_its_own_identifier(name: str) -> None:
    assert (identifier_of(name), quote_name(name), name_of(name)) == (name, name, name)


@given(st.text(max_size=60))
@example("dim___ffffff_ dim___110000_ dim___a_ dim__in_2 dim__")
def test_any_message_can_be_read(text: str) -> None:
    assert isinstance(names.with_names(f"{text} dim__{text}"), str)


def test_an_identifier_that_stands_for_no_name_is_one() -> None:
    for identifier in ("dim___a_", "dim__", "dim___110000_", "dim__seq_2d_len_1", "dim__plain"):
        assert name_of(identifier) == identifier
    assert names.with_names("dim__seq_2d_len_1 is dim__seq_2d_len") == '"seq-len"_1 is "seq-len"'


@given(usable)
def test_quotes_come_off_again(name: str) -> None:
    assert unquote_name(quote_name(name)) == name
    assert unquote_name(option_name(name)) == name
    assert Axis.of_dim(name).symbol == name


@given(st.lists(usable, min_size=1, max_size=4))
def test_a_spec_is_read_as_it_is_written(result: list[str]) -> None:
    spec = TensorSpec("x", "float32", tuple(Axis(f"2*{quote_name(name)}+1") for name in result))
    assert TensorSpec.of("x", spec.text) == spec
    assert TensorSpec.from_json(spec.to_json()) == spec
    assert [axis.dims for axis in spec.shape] == [{name} for name in result]


def test_what_an_option_needs_no_quotes_for() -> None:
    assert [option_name(name) for name in ("seq-len", "a=b", "1")] == ["seq-len", "a=b", "1"]
    assert [option_name(name) for name in (" a", '"a"')] == ['" a"', r'"\"a\""']
