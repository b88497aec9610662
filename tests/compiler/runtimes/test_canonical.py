"""Objects whose canonical forms are equal."""

from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import tirx

from compiler.runtimes import canonical


def form(subject: Any) -> bytes | None:
    return canonical.form_of(subject, canonical.library())


def program(
    names: tuple[str, str] = ("x", "i"),
    extent: int = 8,
    dtype: str = "float32",
    addend: float = 1.0,
    kind: Any = tirx.ForKind.SERIAL,
    attrs: dict[str, Any] | None = None,
    index: Callable[[Any], Any] = lambda i: i,
) -> tirx.PrimFunc:
    buffer = tirx.decl_buffer((8,), dtype, names[0])
    i = tirx.Var(names[1], "int64")
    value = tirx.BufferLoad(buffer, [i]) + tirx.const(addend, dtype)
    loop = tirx.For(i, 0, extent, kind, tirx.BufferStore(buffer, value, [index(i)]))
    return tirx.PrimFunc([buffer], loop).with_attr({"a": 1, **(attrs or {})})


def test_names_do_not_matter() -> None:
    assert form(program()) == form(program(("weights", "row"))) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"extent": 7},
        {"dtype": "float64"},
        {"addend": 1.0000001},
        {"kind": tirx.ForKind.PARALLEL},
        {"attrs": {"relaxd.family": "matmul"}},
        {"attrs": {"a": 2}},
        {"attrs": {"a": "a text of more than seven bytes"}},
        {"index": lambda i: i + 1},
        {"index": lambda i: tirx.const(0, "int64")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_all_else_does(changed: dict[str, Any]) -> None:
    assert form(program(**changed)) not in (form(program()), None)


def test_variables_are_told_apart() -> None:
    x, y = tirx.Var("v", "int32"), tirx.Var("v", "int32")
    assert form(tvm.runtime.convert([x, y, x])) != form(tvm.runtime.convert([x, y, y]))
    assert form(tvm.runtime.convert([x, y, x])) == form(tvm.runtime.convert([y, x, y]))


def test_fields_do_not_run_into_each_other() -> None:
    one, other = (tvm.runtime.convert(texts) for texts in (["ab", "c"], ["a", "bc"]))
    assert form(one) != form(other)
    assert form(tvm.runtime.convert([["a"], "b"])) != form(tvm.runtime.convert([["a", "b"]]))


def test_maps_have_their_content() -> None:
    forms = [form(tvm_ffi.Map(content)) for content in ({"a": 1}, {"a": 2}, {"b": 1}, {})]
    assert None not in forms
    assert len(set(forms)) == 4


def test_what_has_no_structure_has_no_form() -> None:
    assert form(tvm.runtime.convert([tvm_ffi.convert(lambda: 1)])) is None
    function = tvm.runtime.convert([tvm_ffi.convert(len)])
    assert canonical.digest(function, canonical.library()) is None
