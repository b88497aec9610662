import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import compiler
import relaxd
from compiler.bundle import weights


def model():
    """y = relu(x), and an empty constant as it is."""
    empty = numpy_helper.from_array(np.zeros((2, 0), np.float32), "empty")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "n"])
    e = helper.make_tensor_value_info("e", TensorProto.FLOAT, [2, 0])
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["empty"], ["e"])]
    graph = helper.make_graph(nodes, "g", [x], [y, e], [empty])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_a_library_with_an_empty_constant_opens(tmp_path):
    proto = model()
    onnx.checker.check_model(proto, full_check=True)
    manifest = compiler.compile_model(proto, output=tmp_path / "out", dims={"n": (1, 4)})
    assert not manifest.weights
    outputs = relaxd.load(tmp_path / "out").run({"x": np.array([[-1, 2], [3, -4]], np.float32)})
    np.testing.assert_array_equal(outputs["y"], [[0, 2], [3, 0]])
    assert outputs["e"].shape == (2, 0)


def test_equal_constants_share_a_weight_and_those_that_differ_within_do_not():
    rows = np.zeros((3, 1024), np.float32)
    rows[1, 500] = 1
    arrays = [rows[0], rows[1], rows[0], rows[1], rows[2], rows[0].view(np.int32)]
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1024,), "float32"))
    with builder.function("main", [x]):
        floats = [relax.const(tvm.runtime.tensor(np.ascontiguousarray(one))) for one in arrays[:5]]
        integers = relax.const(tvm.runtime.tensor(arrays[5]), "int32")
        builder.emit_func_output(relax.Tuple([*floats, integers]))
    separated = weights.separate(builder.get())
    assert [str(one.dtype) for one in separated.constants] == ["float32", "float32", "int32"]
    taken = separated.module["main"].body.body.fields
    assert [field.name for field in taken] == [f"weight_{index}" for index in (0, 1, 0, 1, 0, 2)]
    for field, array in zip(taken, arrays, strict=True):
        index = int(field.name.partition("_")[2])
        np.testing.assert_array_equal(separated.constants[index].numpy(), array)
