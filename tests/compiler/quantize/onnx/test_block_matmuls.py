"""Models that round what weights in blocks multiply, in ONNX Runtime beside the rule in numpy."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.onnx.model.matmuls import INT8_LEVEL, LEVEL
from compiler.ir.onnx.model.opsets import opset_of
from compiler.ir.ops.quantized.block_matmul import dequantize
from compiler.quantize.onnx.block_matmuls import (
    layers_of,
    quantize_rows,
    set_level,
)
from relaxd.contract.options import Precision
from tests.compiler.ir.onnx.running import normal, session_of
from tests.compiler.passes.cpu.families.test_nbits import model_of, quantize_dequantize, table


def levels(model: onnx.ModelProto) -> list[int]:
    return [one.i for node in model.graph.node for one in node.attribute if one.name == LEVEL]


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize(
    ("bits", "block", "depth", "zeros"),
    [(4, 32, 96, "none"), (4, 16, 37, "bytes"), (8, 32, 41, "bytes"), (4, 128, 128, "floats")],
)
def test_rows_are_quantized_by_the_rule(
    opset: int, bits: int, block: int, depth: int, zeros: str
) -> None:
    weights = table(bits, block, depth, 24, zeros)
    model = model_of(weights, accuracy_level=INT8_LEVEL)
    model.opset_import[0].version = opset
    quantize_rows(model)
    assert (levels(model), opset_of(model.opset_import)) == ([0], opset)
    session = session_of(model)
    for rows in (0, 1, 5):
        x = normal(rows, depth) * 3
        x[: rows // 2, :block] = 0
        want = quantize_dequantize(x, block) @ dequantize(weights).astype(np.float64).T
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


def test_functions_that_take_attributes_of_their_calls_stay() -> None:
    model = model_of(table(4, 32, 64, 24, "none"))
    function = onnx.parser.parse_function(
        '<domain: "own", opset_import: ["" : 21]> add <value> (x) => (y)'
        "{ more = Constant <value_float: float = @value> ()  y = Add (x, more) }"
    )
    model.functions.append(function)
    quantize_rows(model)
    assert model.functions[0] == function


def test_float16_stays_float16() -> None:
    weights = table(4, 32, 64, 24, "halves")
    model = model_of(weights)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    for constant in model.graph.initializer:
        if constant.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(constant).astype(np.float16)
            constant.CopyFrom(numpy_helper.from_array(array, constant.name))
    quantize_rows(model)
    x = normal(3, 64).astype(np.float16)
    want = quantize_dequantize(x.astype(np.float32), 32) @ dequantize(weights).astype(np.float64).T
    (got,) = session_of(model).run(None, {"x": x})
    assert got.dtype == np.float16
    assert np.abs(got - want).max() < 2e-3 * np.abs(want).max()


def decoder() -> onnx.ModelProto:
    """Two matmuls of one value, one in a branch, one of 2 bits, and one by a float matrix."""
    weights = table(4, 16, 32, 32, "none")
    model = model_of(weights)
    (first,) = model.graph.node
    first.name, first.output[0] = "first", "p"
    copies = {}
    for name in ("second", "inner", "few"):
        copies[name] = onnx.NodeProto()
        copies[name].CopyFrom(first)
        copies[name].name, copies[name].output[0] = name, name
    bits = next(one for one in copies["few"].attribute if one.name == "bits")
    bits.i = 2
    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    copies["inner"].input[0] = "p"
    then = helper.make_graph([copies["inner"]], "then", [], [output])
    same = helper.make_node("Identity", ["p"], ["inner"])
    other = helper.make_graph([same], "other", [], [output])
    model.graph.node.extend(
        [
            copies["second"],
            helper.make_node("If", ["which"], ["q"], then_branch=then, else_branch=other),
            helper.make_node("MatMul", ["q", "real"], ["r"], name="float"),
            helper.make_node("Sum", ["second", "r"], ["y"]),
        ]
    )
    model.graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, []))
    model.graph.initializer.append(numpy_helper.from_array(normal(32, 32), "real"))
    quarter = weights.numbers[:, :, ::2]
    model.graph.initializer.append(numpy_helper.from_array(quarter, "quarter"))
    copies["few"].input[1] = "quarter"
    model.graph.node.append(copies["few"])
    return model


def test_layers_wherever_they_stand() -> None:
    model = decoder()
    layers = layers_of(model)
    assert layers.form is Precision.INT8
    assert layers.layers == ("first", "second", "inner")
    assert set(layers.kept) == {"few", "float"}
    assert set_level(model, INT8_LEVEL) == 3
    assert levels(model) == [INT8_LEVEL, INT8_LEVEL]
    quantize_rows(model)
    # Matmuls of one value share what rounds it.
    rounds = [node for node in model.graph.node if node.op_type == "Round"]
    assert len(rounds) == 1
    weights = table(4, 16, 32, 32, "none")
    exact, real = dequantize(weights).astype(np.float64).T, normal(32, 32)
    session, x = session_of(model), normal(3, 32, seed=2)
    once = quantize_dequantize(x, 16) @ exact
    twice = quantize_dequantize(once.astype(np.float32), 16) @ exact
    for which, inner in ((True, twice), (False, once)):
        (got,) = session.run(["y"], {"x": x, "which": np.array(which)})
        np.testing.assert_allclose(got, once + inner @ real, rtol=1e-4, atol=1e-3)


def test_a_perturbation_moves_numbers_between_two_neighbours() -> None:
    weights = table(4, 16, 16, 8, "none")
    x = np.full((1, 16), 127, np.float32)
    # Just below and just above the middle of two integers, beside the block's greatest, 127.
    x[0, 1:3] = 5.5 - 2.0**-16, 6.5 + 2.0**-16
    results = []
    for perturbation in (0.0, 2.0**-21, -(2.0**-21)):
        model = model_of(weights)
        quantize_rows(model, perturbation)
        results.append(session_of(model).run(None, {"x": x})[0][0])
    column = dequantize(weights).astype(np.float64).T
    for got, left, right in zip(results, (5, 6, 5), (7, 7, 6), strict=True):
        x[0, 1:3] = left, right
        np.testing.assert_allclose(got, (x @ column)[0], rtol=1e-4, atol=1e-3)
