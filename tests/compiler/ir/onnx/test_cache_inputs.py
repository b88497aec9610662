"""How the import recognises the inputs that state how far a cache is filled."""

from typing import Any

import numpy as np
import onnx
from onnx import helper

from compiler.ir import import_model
from compiler.ir.caches import CacheUse
from relaxd.contract.bundle.state import Part
from relaxd.contract.dims.axes import Axis
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import model_of

HEADS, GROUPS, SIZE = 4, 2, 8
INPUTS = {
    "x": f"float32[n,s,{(HEADS + 2 * GROUPS) * SIZE}]",
    "past_key": f"float32[n,{GROUPS},p,{SIZE}]",
    "past_value": f"float32[n,{GROUPS},p,{SIZE}]",
}
ORDER = ["x", "", "", "past_key", "past_value", "last", "total"]


def attending(extra: dict[str, str], nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    attend = helper.make_node(
        "GroupQueryAttention",
        ORDER,
        ["y", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
    )
    constants: dict[str, Any] = {"one": np.array([1]), "axis": np.array(1)}
    model = model_of([*nodes, attend], {**INPUTS, **extra}, constants, outputs=["y", "present_key"])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def builders_mask() -> onnx.ModelProto:
    """The lengths of a mask, as onnxruntime-genai's builder writes them."""
    return attending(
        {"attention_mask": "int64[n,t]"},
        [
            helper.make_node("ReduceSum", ["attention_mask", "one"], ["sums"], keepdims=0),
            helper.make_node("Sub", ["sums", "one"], ["less"]),
            helper.make_node("Cast", ["less"], ["last"], to=onnx.TensorProto.INT32),
            helper.make_node("Shape", ["attention_mask"], ["shape"]),
            helper.make_node("Gather", ["shape", "axis"], ["most"], axis=0),
            helper.make_node("Cast", ["most"], ["total"], to=onnx.TensorProto.INT32),
        ],
    )


def uses(model: onnx.ModelProto) -> tuple[CacheUse, ...]:
    request = CompileRequest.of(dims={"n": (1, 4), "s": (1, 8), "p": (0, 8)})
    return import_model(model, request).caches


def test_a_mask_whose_ones_are_counted() -> None:
    assert uses(builders_mask()) == (
        CacheUse(Axis("n"), Axis("s"), Axis("p"), Axis("t"), {"attention_mask": Part.MASK}),
    )


def test_lengths_that_are_inputs() -> None:
    model = attending({"last": "int32[n]", "total": "int32[]"}, [])
    parts = {"last": Part.LAST, "total": Part.TOTAL}
    assert uses(model) == (CacheUse(Axis("n"), Axis("s"), Axis("p"), None, parts),)


def test_a_length_from_which_one_is_subtracted() -> None:
    less = helper.make_node("Sub", ["lengths", "small"], ["last"])
    model = attending({"lengths": "int32[n]", "total": "int32[]"}, [less])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], np.int32), "small"))
    assert uses(model)[0].parts == {"lengths": Part.LENGTH, "total": Part.TOTAL}


def test_attention_without_a_cache_has_no_uses() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    assert uses(model_of([relu], {"x": "float32[n,s,p]"})) == ()
