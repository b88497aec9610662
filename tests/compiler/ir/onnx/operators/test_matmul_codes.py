"""MatMulBnb4 as ONNX Runtime's quantizer writes it, beside ONNX Runtime and float64: rows that end
within a block, one column, blocks of zeros, and numbers that are not finite.
"""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

from compiler.bundle.weights import separate
from compiler.errors import ImportFailed
from compiler.ir import import_model
from compiler.passes.gpu.unpack_nbits import UnpackNBits
from compiler.passes.manager import lower
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, model_of, normal
from tests.compiler.passes import lowered
from tests.compiler.passes.processors import nearest

ROWS = (0, 1, 2, 5, 9, 64, 67)
FP4, NF4 = 0, 1
SIZES = [(64, 5, 64), (128, 33, 32), (96, 7, 64), (72, 1, 64), (40, 9, 16), (100, 3, 16)]
"""Depth, columns and block; the last one's rows end within words."""
VALUES = {
    FP4: [sign * value / 192 for sign in (1, -1) for value in (0, 1, 128, 192, 64, 96, 32, 48)],
    NF4: [-1, -0.69619, -0.52507, -0.39492, -0.28444, -0.18477, -0.09105, 0,
          0.07958, 0.16093, 0.24611, 0.33792, 0.44071, 0.56262, 0.72296, 1],
}  # fmt: skip
"""Of the codes, to five digits."""


def model(
    depth: int, columns: int, block: int, kind: int, weight: object = None
) -> onnx.ModelProto:
    if weight is None:
        weight = normal(depth, columns)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = model_of([node], {"x": f"float32[n,{depth}]"}, {"w": weight})
    quantizer = MatMulBnb4Quantizer(proto, kind, block)
    quantizer.process()
    return quantizer.model.model


def dequantize(proto: onnx.ModelProto) -> np.ndarray:
    """The matrix [depth, columns] in float64, code by code."""
    attributes = {one.name: one.i for one in proto.graph.node[0].attribute}
    tensors = {one.name: numpy_helper.to_array(one) for one in proto.graph.initializer}
    packed, scales = (tensors[name] for name in proto.graph.node[0].input[1:])
    depth, columns, block = (attributes[name] for name in ("K", "N", "block_size"))
    result = np.zeros((columns, depth))
    for number in range(columns * depth):
        byte = int(packed.reshape(-1)[number // 2])
        code = byte & 15 if number % 2 else byte >> 4
        value = VALUES[attributes["quant_type"]][code] * scales.reshape(-1)[number // block]
        result[number // depth, number % depth] = value
    return result.T


@pytest.mark.parametrize("kind", [FP4, NF4])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_like_onnxruntime_and_float64(size: tuple[int, int, int], kind: int) -> None:
    proto = model(*size, kind)
    feeds = [{"x": normal(rows, size[0])} for rows in ROWS]
    built = assert_like_onnxruntime(proto, feeds, tolerance=2e-5)
    lowered.assert_like_onnxruntime(proto, feeds, {"n": (0, None)}, tolerance=2e-5)
    exact = dequantize(proto)
    for feed in feeds:
        (got,) = built.run(feed)
        np.testing.assert_allclose(got, feed["x"] @ exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_other_vectors_and_rows_in_any_company(target: str) -> None:
    proto = model(96, 70, 64, NF4)
    feeds = [{"x": normal(rows, 96)} for rows in ROWS]
    unit = nearest(target)
    lowered.assert_like_onnxruntime(proto, feeds, {"n": (0, None)}, unit, tolerance=2e-5)
    built, x = lowered.build(proto, {"n": (0, None)}, unit), feeds[-1]["x"]
    alone = np.concatenate([built.run({"x": row[None]})[0] for row in x])
    np.testing.assert_array_equal(built.run({"x": x})[0].view(np.int32), alone.view(np.int32))


def test_blocks_of_zeros_and_numbers_that_are_not_finite() -> None:
    weight = normal(64, 40)
    weight[:, 3] = 0
    proto = model(64, 40, 32, FP4, weight)
    built = lowered.build(proto, {"n": (1, None)})
    x = normal(9, 64)
    x[4, 7], x[6, 8] = np.nan, np.inf
    (got,) = built.run({"x": x})
    assert not got[[0, 1, 2, 3, 5, 7, 8], 3].any()
    assert not np.isfinite(got[[4, 6]]).any()
    assert np.isfinite(np.delete(got, [4, 6], 0)).all()


@pytest.mark.parametrize("kind", [FP4, NF4])
def test_weights_stay_codes(kind: int) -> None:
    proto = model(512, 64, 64, kind)
    imported = import_model(proto, CompileRequest.of(dims={"n": (1, None)}))
    constants = separate(lower(imported.module, HOST, imported.ranges), smallest=0).constants
    stored = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    assert sum(one.numpy().nbytes for one in constants) <= stored + 64


def test_targets_without_the_kernel_multiply_float32() -> None:
    proto = model(64, 5, 64, NF4)
    imported = import_model(proto, CompileRequest.of(dims={"n": (1, None)}))
    module = UnpackNBits().apply(imported.module)
    (constant,) = separate(module, smallest=64).constants
    np.testing.assert_allclose(constant.numpy(), dequantize(proto), rtol=1e-4, atol=1e-4)


def test_other_forms_are_refused() -> None:
    proto = model(64, 5, 64, NF4)
    proto.graph.node[0].attribute.append(helper.make_attribute("transB", 0))
    with pytest.raises(ImportFailed, match="not transposed"):
        build(proto)
    proto = model(64, 5, 64, NF4)
    next(one for one in proto.graph.node[0].attribute if one.name == "quant_type").i = 2
    with pytest.raises(ImportFailed, match="neither 0 "):
        build(proto)


@pytest.mark.parametrize("name", ["K", "N", "block_size"])
@pytest.mark.parametrize("value", [-64, 0, 1, 63, 1 << 40])
def test_sizes_that_do_not_fit_are_refused(name: str, value: int) -> None:
    proto = model(64, 5, 64, NF4)
    next(one for one in proto.graph.node[0].attribute if one.name == name).i = value
    with pytest.raises(ImportFailed, match=r"at least 1|take \d+ bytes and \d+ scales"):
        build(proto)
