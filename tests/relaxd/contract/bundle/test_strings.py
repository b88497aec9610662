"""The documents of steps on strings."""

from typing import Any

import pytest

from relaxd.contract.bundle.strings import Step, Steps, Strings, string_spec
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import BundleError

STRINGS = Strings(
    (string_spec("city", (Axis("n"), Axis("1"))), TensorSpec("age", "float32", (Axis("n"),))),
    (string_spec("label", (Axis("n"),)),),
    ("city_index",),
    ("label_index",),
    ("tokenizers",),
)
STEPS = Steps(
    (Step("index", ("city",), ("city_index",), {"keys": ["Rome", "\u6771"], "strict": False}),),
    (Step("identity", ("label_index",), ("label",)),),
)


def test_documents_are_read_as_they_were_written() -> None:
    assert Strings.from_json(STRINGS.to_json()) == STRINGS
    assert Steps.from_json(STEPS.to_json()) == STEPS


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"version": None},
        {"encoded": "city_index"},
        {"encoded": [1]},
        {"packages": [1]},
        {"inputs": [{"name": "x", "dtype": "strings", "shape": []}]},
        {"inputs": [{"name": "x", "dtype": "string", "shape": [None]}]},
        {"inputs": [{"dtype": "string", "shape": []}]},
        {"more": 1},
    ],
)
def test_malformed_interfaces(changed: dict[str, Any]) -> None:
    with pytest.raises(BundleError):
        Strings.from_json({**STRINGS.to_json(), **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 0},
        {"before": {}},
        {"before": [{"op": 1, "inputs": [], "outputs": []}]},
        {"before": [{"op": "index", "inputs": "x", "outputs": []}]},
        {"after": [{"op": "index", "inputs": [], "outputs": [], "attributes": []}]},
        {"after": [{"op": "index", "inputs": [], "outputs": [], "code": "x"}]},
        {"between": []},
    ],
)
def test_malformed_steps(changed: dict[str, Any]) -> None:
    with pytest.raises(BundleError):
        Steps.from_json({**STEPS.to_json(), **changed})
