"""Which handler serves an operator at an opset."""

import pytest
from onnx import defs

from compiler.ir.onnx import (
    operators,  # noqa: F401  fills the registry
    registry,
)
from compiler.ir.onnx.registry import REFUSED, TABLE


@pytest.fixture
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "TABLE", {})
    monkeypatch.setattr(registry, "REFUSED", {})


@pytest.mark.usefixtures("_restored")
def test_the_newest_handler_that_is_not_too_new_serves() -> None:
    @registry.op("Toy", since=7)
    def seven(b, node):
        raise AssertionError

    @registry.op("Toy", "Alias", since=13)
    def thirteen(b, node):
        raise AssertionError

    @registry.op("Toy")
    def first(b, node):
        raise AssertionError

    handlers = [registry.find("", "Toy", opset) for opset in (1, 6, 7, 12, 13, 99)]
    assert handlers == [first, first, seven, seven, thirteen, thirteen]
    assert registry.find("", "Alias", 12) is None
    assert registry.find("ai.onnx", "Alias", 13) is thirteen
    assert registry.find("other", "Toy", 13) is None


@pytest.mark.usefixtures("_restored")
def test_a_refusal_has_a_domain() -> None:
    registry.refuse("Toy", domain="own", why="because")
    assert registry.refusal("own", "Toy") == "because"
    assert registry.refusal("", "Toy") is None


def test_nothing_is_both_served_and_refused() -> None:
    assert not TABLE.keys() & REFUSED.keys()


def test_every_operator_of_the_standard_is_served_refused_or_a_function() -> None:
    opset = defs.onnx_opset_version()
    for schema in defs.get_all_schemas():
        if schema.domain or schema.deprecated or schema.support_level.name == "EXPERIMENTAL":
            continue
        served = registry.find("", schema.name, opset) or registry.refusal("", schema.name)
        assert served or schema.has_function or schema.has_context_dependent_function, schema.name
