"""Block-wise quantized tables that serve as weights and as rows are stored once."""

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.bundle.weights import separate
from compiler.ir import import_model
from compiler.ir.imported import Imported
from compiler.passes.gpu.unpack_nbits import UnpackNBits
from compiler.passes.manager import to_kernels
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import assert_close, model_of, session_of
from tests.compiler.passes.cpu.families.test_nbits import table
from tests.compiler.passes.lowered import build

DEPTH, WORDS = 128, 75


def tie(bits: int = 4, untied: bool = False) -> onnx.ModelProto:
    """Rows of a table, and their products with its rows, or with those of another table."""
    blocks = table(bits, 32, DEPTH, WORDS, "none")
    second = table(bits, 32, DEPTH, WORDS, "none", seed=1) if untied else blocks
    rows = helper.make_node(
        "GatherBlockQuantized",
        ["t", "ids", "s"],
        ["x"],
        domain="com.microsoft",
        bits=bits,
        block_size=32,
        gather_axis=0,
        quantize_axis=1,
    )
    matmul = helper.make_node(
        "MatMulNBits",
        ["x", "w", "ws"],
        ["y"],
        domain="com.microsoft",
        K=DEPTH,
        N=WORDS,
        bits=bits,
        block_size=32,
    )
    constants = {
        "t": blocks.numbers.reshape(WORDS, -1),
        "s": blocks.scales,
        "w": second.numbers,
        "ws": second.scales,
    }
    model = model_of([rows, matmul], {"ids": "int64[n,m]"}, constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def import_tied(model: onnx.ModelProto) -> Imported:
    return import_model(model, CompileRequest.of(dims={"n": (1, 4), "m": (1, 8)}))


def weight_bytes(model: onnx.ModelProto) -> int:
    imported = import_tied(model)
    scheduled = to_kernels(imported.module, HOST, imported.ranges)
    return sum(tensor.numpy().nbytes for tensor in separate(scheduled).constants)


def test_a_tied_table_is_stored_once() -> None:
    row, width = DEPTH // 2 + 4 * DEPTH // 32, 2 * VectorUnit.of(HOST).lanes(32)
    panels = -(-WORDS // width) * width * row
    assert weight_bytes(tie()) == panels
    assert weight_bytes(tie(untied=True)) > panels


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("untied", [False, True])
def test_rows_and_matmuls_of_a_table(bits: int, untied: bool) -> None:
    model = tie(bits, untied)
    built, session = build(model, {"n": (1, 4), "m": (1, 8)}), session_of(model)
    for ids in ([[0]], [[3, 74, 11], [9, 2, 31]]):
        feed = {"ids": np.array(ids, np.int64)}
        assert_close(built.run(feed), session.run(None, feed), ["x", "y"])


def test_gpus_get_floats() -> None:
    main = UnpackNBits().apply(import_tied(tie()).module).script().partition("def main")[2]
    assert "R.matmul" in main
    assert "cls.take" in main
    assert "nbits" not in main
