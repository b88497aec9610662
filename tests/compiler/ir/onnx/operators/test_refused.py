"""Operators refused by name say why."""

import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import build, model_of


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("RegexFullMatch", "strings"),
        ("StringNormalizer", "strings"),
    ],
)
def test_refusals(op: str, why: str) -> None:
    with pytest.raises(ImportFailed, match=why) as caught:
        build(model_of([helper.make_node(op, ["x"], ["y"], name="odd")], {"x": "float32[n]"}))
    assert caught.value.failure.node == "odd"
    assert caught.value.failure.op == op
