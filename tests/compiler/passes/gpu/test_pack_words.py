"""Block-wise quantized weights as words for WebGPU."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax, te, tirx

from compiler import compile_model, targets
from compiler.bundle.weights import separate
from compiler.ir.ops.quantized.block_matmul import HALF, Blocks, matmul_program
from compiler.passes.gpu.one_row import OneRow
from compiler.passes.gpu.pack_words import PackWords
from compiler.passes.gpu.schedule import apply_rule
from compiler.passes.manager import to_kernels
from compiler.verify.emulation import browser as headless
from tests.compiler.ir.onnx.running import model_of, session_of
from tests.compiler.passes.cpu.families.test_nbits import pack_zeros, table
from tests.compiler.passes.gpu.programs import matmul, target_of
from tests.compiler.passes.gpu.serial import OnProcessor, serial
from tests.compiler.passes.pack.test_nbits import DEPTH, WORDS, import_tied, tie

WEBGPU = targets.resolve("webgpu")


def gate(bits: int, zeros: str, columns: int) -> onnx.ModelProto:
    """The product of x[n, m, DEPTH] and a table, times its sigmoid."""
    blocks = table(bits, 32, DEPTH, columns, zeros)
    constants = {"w": blocks.numbers, "s": blocks.scales}
    if zeros == "bytes":
        constants["z"] = pack_zeros(blocks.zeros, bits)
    if zeros == "floats":
        constants["z"] = blocks.zeros
    attributes = {"K": DEPTH, "N": columns, "bits": bits, "block_size": 32}
    nodes = [
        helper.make_node(
            "MatMulNBits", ["x", *constants], ["p"], domain="com.microsoft", **attributes
        ),
        helper.make_node("Sigmoid", ["p"], ["g"]),
        helper.make_node("Mul", ["p", "g"], ["y"]),
    ]
    model = model_of(nodes, {"x": f"float32[n,m,{DEPTH}]"}, constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    # What is no output is fused.
    del model.graph.output[:-1]
    return model


@pytest.mark.parametrize("columns", [48, 75])
@pytest.mark.parametrize(
    ("bits", "zeros"), [(4, "none"), (4, "bytes"), (4, "floats"), (8, "none"), (8, "bytes")]
)
def test_matmuls_are_those_of_onnxruntime(bits: int, zeros: str, columns: int) -> None:
    model = gate(bits, zeros, columns)
    run, session = OnProcessor(to_kernels(import_tied(model).module, WEBGPU, {})), session_of(model)
    for entries, rows in ((1, 1), (2, 1), (1, 3), (4, 8)):
        x = np.random.default_rng(rows).standard_normal((entries, rows, DEPTH)).astype("float32")
        (wanted,) = session.run(["y"], {"x": x})
        np.testing.assert_allclose(run(x)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(bool(headless.lacking()), reason="Chromium's headless shell cannot run here")
def test_shaders_give_the_numbers_of_onnxruntime(tmp_path: Path) -> None:
    compile_model(
        gate(4, "floats", 48),
        output=tmp_path / "out",
        target="webgpu",
        dims={"n": (1, 4), "m": (1, 16)},
        options={"profile": False},
    )
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert (numerics["status"], numerics["verdict"]) == ("emulated", "passed")
    rows = {point["dims"]["n"] * point["dims"]["m"] for point in numerics["points"]}
    assert min(rows) == 1
    assert max(rows) > 8


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_are_those_of_onnxruntime(bits: int) -> None:
    model = tie(bits)
    run, session = OnProcessor(to_kernels(import_tied(model).module, WEBGPU, {})), session_of(model)
    for listed in ([[0]], [[3, 74, -1], [9, 2, -WORDS]]):
        ids = np.array(listed, np.int64)
        wanted = session.run(["x", "y"], {"ids": ids % WORDS})
        for got, want in zip(run(ids), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def stored_bytes(model: onnx.ModelProto) -> int:
    scheduled = to_kernels(import_tied(model).module, WEBGPU, {})
    return sum(tensor.numpy().nbytes for tensor in separate(scheduled).constants)


def test_a_table_stays_packed_and_a_tied_one_is_stored_once() -> None:
    words = WORDS * (DEPTH // 2 + 4 * DEPTH // 32)
    assert words <= stored_bytes(tie()) < words + 100
    assert stored_bytes(tie(untied=True)) >= 2 * words


def test_float16_is_left_to_the_pass_behind() -> None:
    n, builder = tirx.Var("n", "int64"), relax.BlockBuilder()
    bits = np.random.default_rng(0).random((WORDS, 1, DEPTH)).astype(np.float16).view(np.uint16)
    program = matmul_program(Blocks(HALF, DEPTH, DEPTH, bits, None, None), [n])
    x = relax.Var("x", relax.TensorType((n, DEPTH), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(
            builder.call_te(program, x, relax.const(bits), primfunc_name_hint="halves_product")
        )
    module = builder.get()
    tvm.ir.assert_structural_equal(PackWords().apply(module), module)


def by_words(columns: int, depth: int) -> tirx.PrimFunc:
    """x[n, depth] times bytes, with a bias; stands for what fusion makes."""
    n = tirx.Var("n", "int64")
    k_extent, width = tirx.IntImm("int64", depth), tirx.IntImm("int64", columns)
    x, w, b = (
        te.placeholder(shape, dtype, name=name)
        for name, shape, dtype in (
            ("x", (n, k_extent), "float32"),
            ("w", (width, k_extent), "uint32"),
            ("b", (width,), "float32"),
        )
    )
    real = te.compute((width, k_extent), lambda j, k: w[j, k].astype("float32"), name="dequantize")
    k = te.reduce_axis((tirx.IntImm("int64", 0), k_extent), name="k")
    y = te.compute((n, width), lambda i, j: te.sum(x[i, k] * real[j, k], axis=k), name="product")
    return te.create_prim_func([x, w, b, te.compute((n, width), lambda i, j: y[i, j] + b[j])])


@pytest.mark.parametrize(("columns", "depth"), [(48, 576), (8, 32), (24, 1536)])
def test_one_row_by_runs_of_the_depth(columns: int, depth: int) -> None:
    kernel = apply_rule(OneRow(), target_of("webgpu"), by_words(columns, depth))
    run = tvm.compile(serial(kernel).with_attr("global_symbol", "main"), target="llvm")
    draw = np.random.default_rng(0)
    w = draw.integers(0, 9, (columns, depth)).astype("uint32")
    b = draw.standard_normal(columns).astype("float32")
    for rows in (1, 2):
        x = draw.standard_normal((rows, depth)).astype("float32")
        y = tvm.runtime.tensor(np.zeros((rows, columns), "float32"))
        run(*map(tvm.runtime.tensor, (x, w, b)), y)
        np.testing.assert_allclose(y.numpy(), x @ w.T + b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "program",
    [matmul(64, 48), by_words(20, 64), by_words(48, 40)],
    ids=["plain", "columns", "run"],
)
def test_other_matmuls_are_declined(program: tirx.PrimFunc) -> None:
    assert apply_rule(OneRow(), target_of("webgpu"), program) is None
