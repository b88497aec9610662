"""Integers that only run time knows, as the builder reads and checks them."""

from typing import Any

import pytest
from tvm import relax

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.shapes import extents as ex


def _messages(b: Builder) -> list[str]:
    return list(b.checks.messages.values())


def _scalars(known: Known) -> list[Any]:
    return known.scalars()


def _inside(use: Any, dtype: str = "int64") -> Builder:
    """The builder of a function of a vector of two, after `use`."""
    b = Builder()
    x = relax.Var("x", relax.TensorType([2], dtype))
    with b.bb.function("main", [x]):
        use(b, Tensor(x, (2,), dtype))
        b.bb.emit_func_output(relax.Tuple([]))
    return b


def test_extents_are_read_once_and_checked_once() -> None:
    def use(b: Builder, x: Tensor) -> None:
        first, second = (_scalars(b.known_extents(x, "size")) for _ in range(2))
        assert all(lhs.same_as(rhs) for lhs, rhs in zip(first, second, strict=True))
        assert all(b.facts.is_nonnegative(extent) for extent in first)
        # What is no less than 0 serves where any sign would do.
        assert _scalars(b.known_integers(x, "number"))[0].same_as(first[0])

    assert _messages(_inside(use)) == ["size is not in [0, 2^40]"]


def test_integers_do_not_serve_as_extents() -> None:
    def use(b: Builder, x: Tensor) -> None:
        number = b.known_integers(x, "number").scalars()[0]
        assert b.facts.decide(ex.less(number, 0)) is None
        extent = b.known_extents(x, "size").scalars()[0]
        assert b.facts.has_integers(number)
        assert not b.facts.has_integers(extent)

    assert _messages(_inside(use)) == ["number is not in [-2^61, 2^61]", "size is not in [0, 2^40]"]


def test_what_an_extent_is_made_of_is_checked() -> None:
    """Whatever an operator makes a shape of: the check stands in front of its program."""

    def use(b: Builder, x: Tensor) -> None:
        number = b.known_integers(x, "number").scalars()[0]
        named: Any = b.extents([ex.add(number, 1)], "rows")[0]
        assert b.facts.is_nonnegative(named)
        assert named.same_as(b.extents([ex.add(number, 1)], "again")[0])
        broadcast.expand(b, Known.of(1.0, "float32"), [ex.sub(number, 3)])

    assert _messages(_inside(use))[1:] == ["rows is not in [0, 2^40]", "expand is not in [0, 2^40]"]


def test_a_constant_that_is_negative_is_no_extent() -> None:
    with pytest.raises(ImportFailed, match="size is not in"):
        _inside(lambda b, _: b.known_extents(Known.of([2, -1]), "size"))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
def test_of_any_dtype(dtype: str) -> None:
    def use(b: Builder, x: Tensor) -> None:
        item = _scalars(b.known_integers(x, "flag"))[0]
        assert item.ty.dtype == ("bool" if dtype == "bool" else "int64")

    assert len(_messages(_inside(use, dtype))) == (dtype != "bool")
