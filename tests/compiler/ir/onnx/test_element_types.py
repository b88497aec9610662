"""Element types that an operator does not take are refused by name, before anything is computed."""

import numpy as np
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import build, model_of

NODE = helper.make_node
FLOATS, INTEGERS, BOOLS = "float32[3,3]", "int64[3,3]", "bool[3,3]"

REFUSED = {
    "Compress": (["x", "y"], (FLOATS, "float32[3]"), "takes no float32 as condition", "bool"),
    "Where": (["x", "y", "y"], (FLOATS, FLOATS), "takes no float32 as condition", "bool"),
    "And": (["x", "y"], (FLOATS, BOOLS), "takes no float32 as A", "bool"),
    "Gather": (["x", "y"], (FLOATS, "float32[3]"), "takes no float32 as indices", "int32 or int64"),
    "Exp": (["x"], (INTEGERS,), "takes no int64 as input", "float32"),
    "MatMul": (["x", "x"], (BOOLS,), "takes no bool as A", "float32"),
    "Concat": (["x", "y"], (FLOATS, INTEGERS), "float32 and int64 in one", "cast one of them"),
    "Add": (["x", "y"], (FLOATS, INTEGERS), "float32 and int64 in one", "cast one of them"),
}


@pytest.mark.parametrize("op", REFUSED)
def test_another_type_than_the_schemas(op: str) -> None:
    names, types, message, hint = REFUSED[op]
    inputs = dict(zip("xy", types, strict=False))
    attributes = {"axis": 0} if op == "Concat" else {}
    with pytest.raises(ImportFailed, match=message) as caught:
        build(model_of([NODE(op, names, ["z"], name="the node", **attributes)], inputs))
    error = caught.value.failure
    assert caught.value.code == "import.dtype"
    assert error.node == "the node"
    assert hint in str(error.hint)


def test_types_of_an_earlier_or_later_version_are_taken() -> None:
    """ONNX gives Max integers since version 12, and we in all."""
    model = model_of([NODE("Max", ["x", "y"], ["z"])], {"x": "int32[n]", "y": "int32[n]"}, opset=8)
    x, y = np.array([1, 5, -3], np.int32), np.array([2, -4, -7], np.int32)
    np.testing.assert_array_equal(build(model).run({"x": x, "y": y})[0], np.maximum(x, y))
