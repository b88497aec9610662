import json
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.failures import Failure
from relaxd.contract.options import CompileOptions, Flavour
from relaxd.contract.request import FIELDS, CompileRequest
from relaxd.contract.states import State
from service.api.wire import BuildOut, JobIn, OptionsIn, RequestIn
from service.domain import Build


def test_the_wire_has_every_field_of_the_contract() -> None:
    assert JobIn.model_fields.keys() == FIELDS
    assert {name: field.default for name, field in OptionsIn.model_fields.items()} == {
        field.name: field.default for field in fields(CompileOptions)
    }


def test_the_wire_takes_every_value_that_an_option_has() -> None:
    enumerated = {
        field.name: type(field.default)
        for field in fields(CompileOptions)
        if isinstance(field.default, StrEnum)
    } | {"flavour": Flavour}
    assert len(enumerated) > 6
    for name, kind in enumerated.items():
        for value in kind:
            document = OptionsIn.model_validate_json(json.dumps({name: value}))
            assert getattr(document, name) is value


def test_each_option_has_a_title_and_help_for_the_form() -> None:
    for name, field in OptionsIn.model_fields.items():
        assert field.title, name
        assert (field.description or "").endswith("."), name


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


OPERATOR = {
    "name": "com.example::Twice",
    "function": "twice",
    "inputs": ["x=float32[n]"],
    "outputs": ["y=float32[2*n]"],
    "attributes": ["axis=int"],
    "source": "int twice() {}",
}


@st.composite
def requests(draw: st.DrawFn) -> CompileRequest:
    low = draw(st.integers(0, 9))
    dims = {name: (low, low + draw(st.integers(0, 9))) for name in draw(st.sets(NAMES, max_size=3))}
    texts = st.text(st.characters(exclude_characters="\0"), max_size=3)
    consts = draw(st.dictionaries(NAMES, st.booleans() | st.integers(-9, 9) | texts, max_size=2))
    values = st.lists(st.integers(0, 99), min_size=1, max_size=4)
    grids = st.just("auto") | st.dictionaries(NAMES, values, min_size=1, max_size=2)
    profile = st.booleans() | st.fixed_dictionaries({"grid": grids})
    options = {
        "verify": draw(st.booleans()),
        "profile": draw(profile),
        "rtol": draw(st.none() | st.floats(0, 1)),
    }
    return CompileRequest.of(
        dims=dims,
        consts=consts,
        shapes={"v": ["n", 4]},
        inputs={"x": "float32[n,2*m]"},
        options=options,
        operators=draw(st.lists(st.just(OPERATOR), max_size=1)),
    )


@given(requests())
def test_a_request_survives_the_wire(request: CompileRequest) -> None:
    document = CompileRequest.to_json(request)
    assert RequestIn.model_validate(document).request() == request
    assert CompileRequest.from_json(document) == request


@pytest.mark.parametrize(
    "failure",
    [
        Failure("a.b", "import", "m"),
        Failure("a.b", "import", "m", node="n", retryable=True, details={"x": [1]}),
    ],
)
def test_a_failure_survives_the_wire(failure: Failure) -> None:
    build = Build("b", "j", "native", "native", State.FAILED, datetime.now(UTC), error=failure)
    document = BuildOut.of(build).model_dump(mode="json")["error"]
    assert document.keys() == {field.name for field in fields(Failure)}
    assert Failure.from_json(document) == failure
