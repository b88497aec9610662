"""The four tables of operators, and in-place forms."""

import pytest

from compiler.ir.aten import operators  # noqa: F401  fills the registry
from compiler.ir.aten.registry import (
    CONTROL,
    OVERLAPPING,
    PLAIN,
    REFUSED,
    TENSOR,
    VIEW,
    family,
    functional_form,
    is_covered,
    names,
    qualify,
)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("aten::add_", "aten::add"),
        ("aten::__iand__", "aten::__and__"),
        ("aten::__ilshift__", "aten::__lshift__"),
        ("aten::add", None),
        ("aten::__and__", None),
        ("aten::__getitem__", None),
    ],
)
def test_inplace_forms(kind: str, base: str | None) -> None:
    assert functional_form(kind) == base


def test_an_inplace_form_is_covered_by_its_function() -> None:
    assert is_covered("aten::relu")
    assert is_covered("aten::relu_")
    assert is_covered("aten::transpose_")
    assert not is_covered("aten::no_such_function_")
    assert not is_covered("own::relu")


def test_names_are_qualified() -> None:
    assert qualify("relu") == "aten::relu"
    assert qualify("prim::If") == "prim::If"
    assert all("::" in name for name in (*names(), *REFUSED))


def test_nothing_is_both_served_and_refused() -> None:
    assert not set(names()) & REFUSED.keys()


def test_an_operator_has_one_meaning_for_tensors() -> None:
    assert not TENSOR.keys() & VIEW.keys()
    assert not CONTROL.keys() & (TENSOR.keys() | VIEW.keys() | PLAIN.keys())
    assert VIEW.keys() >= OVERLAPPING


def test_every_operator_has_a_family() -> None:
    from compiler.ir.aten.operators import FAMILIES

    assert {family(name) for name in names()} <= set(FAMILIES)
