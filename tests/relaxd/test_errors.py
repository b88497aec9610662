"""Every error of the product has a code of its own, and says what to change."""

import importlib
import pkgutil

import pytest

import relaxd
from artifacts import errors as store
from compiler import errors as compiler
from relaxd.client import errors as client
from relaxd.errors import LoadContractError, RelaxdError
from service import errors as service
from service.api import errors as api

ROOTS = (relaxd.errors, client, store, compiler, service, api)


def classes() -> list[type[RelaxdError]]:
    for module in pkgutil.iter_modules(relaxd.__path__, "relaxd."):
        if module.name == "relaxd.errors":
            importlib.import_module(module.name)
    results = {
        value
        for root in ROOTS
        for value in vars(root).values()
        if isinstance(value, type) and issubclass(value, RelaxdError)
    }
    return sorted(results, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def test_no_two_errors_share_a_code() -> None:
    own = [kind for kind in classes() if isinstance(vars(kind).get("code"), str)]
    codes = [kind.code for kind in own]
    assert len(own) > 30
    assert len(set(codes)) == len(codes), sorted(codes)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_error_is_documented(kind: type[RelaxdError]) -> None:
    assert kind.__doc__


def test_the_hint_stands_behind_the_message() -> None:
    assert str(RelaxdError("it broke")) == "it broke"
    error = RelaxdError("it broke", hint="mend it", part="axle")
    assert str(error) == "it broke (mend it)"
    assert (error.message, error.details) == ("it broke", {"part": "axle"})


def test_a_load_contract_says_what_is_needed_and_what_is_there() -> None:
    error = LoadContractError("GPU", need="sm_90", have="sm_80")
    assert "the bundle needs sm_90, this machine has sm_80" in error.message
    assert error.details == {"need": "sm_90", "have": "sm_80"}
