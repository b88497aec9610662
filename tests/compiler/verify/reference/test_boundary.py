"""Models of narrow inputs and outputs give the same numbers as float32 models."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.verify.reference import boundary

NODE, INFO = helper.make_node, helper.make_tensor_value_info
INT4, FLOAT8 = TensorProto.INT4, TensorProto.FLOAT8E5M2


def model() -> onnx.ModelProto:
    """An input read inside a branch, a constant and an input that are outputs, a float beside."""
    branch = helper.make_graph([NODE("Identity", ["x"], ["t"])], "b", [], [INFO("t", INT4, None)])
    nodes = [
        NODE("If", ["flag"], ["y"], then_branch=branch, else_branch=branch),
        NODE("Cast", ["y"], ["z"], to=TensorProto.FLOAT),
    ]
    constant = numpy_helper.from_array(np.array([1.5, -2]).astype("float8_e5m2"), "c")
    graph = helper.make_graph(
        nodes,
        "narrow",
        [INFO("x", INT4, ["n"]), INFO("flag", TensorProto.BOOL, []), INFO("same", FLOAT8, ["n"])],
        [
            INFO("y", INT4, ["n"]),
            INFO("z", TensorProto.FLOAT, ["n"]),
            INFO("c", FLOAT8, [2]),
            INFO("same", FLOAT8, ["n"]),
        ],
        [constant],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def test_the_widened_model_takes_and_gives_float32() -> None:
    wide = model()
    assert boundary.has_storage_types(wide)
    boundary.widen(wide)
    assert not boundary.has_storage_types(wide)
    onnx.checker.check_model(wide)
    feed = {
        "x": np.array([-8, 3, 7], np.float32),
        "flag": np.array(True),
        "same": np.array([1, 2, 4], np.float32),
    }
    outputs = dict(zip("yzc", ReferenceEvaluator(wide).run(["y", "z", "c"], feed), strict=True))
    assert {name: array.dtype.name for name, array in outputs.items()} == dict.fromkeys(
        "yzc", "float32"
    )
    assert outputs["y"].tolist() == outputs["z"].tolist() == [-8, 3, 7]
    assert outputs["c"].tolist() == [1.5, -2]


def test_a_model_of_wide_types_has_no_storage_types() -> None:
    other = model()
    del other.graph.input[2], other.graph.input[0], other.graph.output[2:], other.graph.output[0]
    assert not boundary.has_storage_types(other)
