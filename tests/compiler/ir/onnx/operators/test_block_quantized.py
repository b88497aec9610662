"""Block-wise quantized tables beside ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_quantized import integers, one_node
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, normal

IDS = [{"i": np.array(ids, np.int64)} for ids in ([[0]], [[3, 6, 1]], [[2], [5]])]


def gathering(constants: dict[str, Any], **attributes: Any) -> onnx.ModelProto:
    order = "w i s" + (" z" if "z" in constants else "")
    return one_node("GatherBlockQuantized", {"i": "int64[n,m]"}, constants, order, **attributes)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("depth", [64, 40])
def test_rows_of_a_table(bits: int, zeros: bool, depth: int) -> None:
    blocks = -(-depth // 32)
    constants = {
        "w": integers(7, depth * bits // 8),
        "s": np.abs(normal(7, blocks)) * 0.1,
    }
    if zeros:
        constants["z"] = integers(7, -(-blocks * bits // 8))
    model = gathering(constants, bits=bits, block_size=32, gather_axis=0, quantize_axis=1)
    assert_like_onnxruntime(model, IDS)


@pytest.mark.parametrize("dtype", ["INT4", "UINT4"])
@pytest.mark.parametrize(("gathered", "along"), [(0, 1), (1, 0), (0, 2)])
def test_other_axes_and_element_types(dtype: str, gathered: int, along: int) -> None:
    shape = [8, 9, 10]
    scales = list(shape)
    scales[along] = -(-shape[along] // 16)
    low = -8 if dtype == "INT4" else 0
    random = np.random.default_rng(0)
    model = gathering(
        {"s": np.abs(normal(*scales)).astype(np.float16)},
        block_size=16,
        gather_axis=gathered,
        quantize_axis=along,
    )
    kind = getattr(onnx.TensorProto, dtype)
    for name, size in (("w", shape), ("z", scales)):
        values = random.integers(low, low + 16, size)
        model.graph.initializer.append(helper.make_tensor(name, kind, size, values.flatten()))
    model.graph.node[0].input.append("z")
    del model.opset_import[:]
    model.opset_import.extend(
        [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    )
    model.ir_version = 10
    assert_like_onnxruntime(model, IDS)


def test_an_index_outside_of_the_table_fails_the_run() -> None:
    constants = {"w": integers(7, 16), "s": np.abs(normal(7, 1))}
    built = build(gathering(constants, bits=4, block_size=32))
    with pytest.raises(RuntimeError, match="match_cast"):
        built.run({"i": np.array([[7]])})


def test_a_table_that_is_computed_is_refused() -> None:
    model = gathering({"s": np.abs(normal(7, 1))}, bits=4, block_size=32)
    table = numpy_helper.from_array(np.zeros((7, 16), np.uint8), "t")
    model.graph.initializer.append(table)
    model.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.UINT8, [7, 16]))
    with pytest.raises(ImportFailed, match="must be a constant"):
        build(model)
