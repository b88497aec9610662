import onnx
import pytest
from onnx import TensorProto, helper

from compiler.errors import LoadError
from compiler.ir.files.model_file import read_model

MARK = b"XnameX"
ODD = b"\xff\xfe\xfd\xfc\xfb\xfa"


def model(**names: str) -> bytes:
    def name(of: str) -> str:
        return names.get(of, of)

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [name("dim")])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [name("dim")])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    inner = helper.make_node("Relu", ["x"], ["z"], name=name("inner"))
    branch = helper.make_graph([inner], "branch", [], [z])
    cond = helper.make_tensor(name("weight"), TensorProto.BOOL, [], [True])
    node = helper.make_node("If", [name("weight")], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([node], "g", [x], [y], [cond])
    return helper.make_model(graph, producer_name=name("producer")).SerializeToString()


@pytest.mark.parametrize("of", ["dim", "inner", "weight", "producer"])
def test_a_text_that_is_no_utf_8_is_refused_wherever_it_is(of, tmp_path):
    data = model(**{of: MARK.decode()})
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    assert read_model(path)
    assert MARK in data
    path.write_bytes(data.replace(MARK, ODD))
    with pytest.raises(LoadError, match="not valid UTF-8") as refused:
        read_model(path)
    assert refused.value.code == "load.not_utf8"


def test_bytes_that_are_no_text_may_be_anything(tmp_path):
    data = onnx.ModelProto.FromString(model())
    data.graph.node[0].attribute.append(helper.make_attribute("odd", ODD))
    path = tmp_path / "model.onnx"
    path.write_bytes(data.SerializeToString())
    assert read_model(path)
