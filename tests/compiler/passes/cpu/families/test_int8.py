import re
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import relax, te

from compiler import targets
from compiler.codegen.generate import generate
from compiler.codegen.standalone import kernels
from compiler.ir import import_model
from compiler.passes import manager
from compiler.passes.manager import lower
from compiler.passes.pack.integer import CENTRED, pack_integers
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, assembly, build_module
from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime
from tests.compiler.passes.references import convolution

op = relax.op


def matmul_by(weight, change=lambda y: y):
    """A matmul of uint8 x [..., K] by a constant matrix, as the importer writes it for quantized
    operators.
    """
    return lambda builder, x: change(
        op.astype(
            op.matmul(op.astype(x, "float32"), relax.const(weight.astype("float32"))), "int32"
        )
    )


@pytest.mark.parametrize(
    ("depth", "columns", "low", "high"),
    [(1, 5, -127, 127), (37, 17, -127, 127), (130, 48, -255, 255), (64, 300, -128, 127)],
)
def test_matmuls_are_exact_for_every_number_of_rows(depth, columns, low, high, compile_graph, draw):
    weight = draw.integers(low, high, (depth, columns), endpoint=True)
    weight[0] = low
    model = compile_graph(matmul_by(weight), {"x": (("n", "m", depth), "uint8")})
    for n, m in [(1, 1), (1, 2), (3, 1), (1, 5), (2, 3), (7, 1), (1, 23), (2, 12), (5, 5)]:
        x = draw.integers(0, 256, (n, m, depth)).astype("uint8")
        x[0, 0] = 255
        np.testing.assert_array_equal(model(x), x.astype("int64") @ weight)


@pytest.mark.parametrize(
    ("channels", "columns", "kernel", "stride", "pads"),
    [(9, 20, 3, 1, (1, 1, 1, 1)), (16, 48, 1, 2, (0,) * 4), (24, 8, 2, 2, (1, 0, 0, 2))],
)
def test_convolutions_are_exact_for_every_extent(
    channels, columns, kernel, stride, pads, compile_graph, draw
):
    weight = draw.integers(-128, 128, (columns, channels, kernel, kernel))

    def graph(builder, x):
        return op.nn.conv2d(
            op.astype(x, "float32"), relax.const(weight.astype("float32")), (stride, stride), pads
        )

    model = compile_graph(graph, {"x": (("n", channels, "h", "w"), "uint8")})
    for n, height, width in [(1, 3, 3), (2, 4, 7), (1, 13, 5)]:
        x = draw.integers(0, 256, (n, channels, height, width)).astype("uint8")
        np.testing.assert_array_equal(
            model(x), convolution(x.astype("float64"), weight, (stride, stride), pads)
        )


def test_the_epilogue_is_applied_to_the_accumulators(compile_graph, draw):
    weight, scale = draw.integers(-127, 128, (24, 40)), draw.random(40).astype("float32")
    model = compile_graph(
        matmul_by(
            weight, lambda y: op.nn.relu(op.multiply(op.astype(y, "float32"), relax.const(scale)))
        ),
        {"x": (("m", 24), "uint8")},
    )
    x = draw.integers(0, 256, (9, 24)).astype("uint8")
    np.testing.assert_allclose(
        model(x), np.maximum((x.astype("int64") @ weight).astype("float32") * scale, 0), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "most", "instruction"),
    [
        ("x86-64-v2", 127, "pmaddwd"),
        ("x86-64-v3", 127, "pmaddwd"),
        ("x86-64-v4", 127, "pmaddwd"),
        ("x86-64-v4-vnni", 127, "vpdpbusd"),
        ("x86-64-v4-vnni", 255, "vpdpwssd"),
        ("aarch64-v8.2", 127, "sdot"),
    ],
)
def test_groups_are_multiplied_by_one_instruction(name, most, instruction, assembly_for, draw):
    text = assembly_for(
        matmul_by(draw.integers(-most, most + 1, (32, 32))),
        {"x": (("m", 32), "uint8")},
        targets.resolve(name),
    )
    assert instruction in text


def test_other_processors_multiply_floats(assembly_for, draw):
    machines = [VectorUnit.of(targets.resolve(name)) for name in ("aarch64", "armv7", "riscv64")]
    assert all(unit.integer_dots == () for unit in machines)
    wide = matmul_by(draw.integers(-255, 256, (32, 32)))
    assert "sdot" not in assembly_for(
        wide, {"x": (("m", 32), "uint8")}, targets.resolve("aarch64-v8.2")
    )


@pytest.mark.parametrize("l2", [1 << 10, 1 << 24])
@pytest.mark.parametrize("columns", [19, 96, 200, 700])
def test_tasks_cover_every_row_and_column_once(columns, l2, compile_graph, draw, monkeypatch):
    """In the order of the rows and, where the weights do not rest in L2, of the columns."""
    unit = replace(VectorUnit.of(HOST), l2=l2)
    monkeypatch.setattr(VectorUnit, "of", lambda target: unit)
    weight = draw.integers(-127, 128, (260, columns))
    model = compile_graph(matmul_by(weight), {"x": (("m", 260), "uint8")})
    for m in (0, 1, 5, 6, 7, 24, 25, 49, 96, 97, 199):
        x = draw.integers(0, 256, (m, 260)).astype("uint8")
        np.testing.assert_array_equal(model(x), x.astype("int64") @ weight)


@pytest.mark.parametrize("name", ["cortex-m4", "cortex-m55", "rv32imc"])
def test_integers_that_are_multiplied_one_by_one_are_exact(name, compile_graph, draw, monkeypatch):
    unit = VectorUnit.of(targets.resolve(name))
    *_, plain = unit.integer_dots
    assert plain.intrinsic is None
    unit = replace(unit, integer_dots=(plain,))
    monkeypatch.setattr(VectorUnit, "of", lambda target: unit)
    weight = draw.integers(-255, 256, (37, 19))
    model = compile_graph(matmul_by(weight), {"x": (("m", 37), "uint8")})
    for m in (1, 2, 3, 25, 47):
        x = draw.integers(0, 256, (m, 37)).astype("uint8")
        np.testing.assert_array_equal(model(x), x.astype("int64") @ weight)


def test_weights_stay_bytes_on_micro_controllers():
    dual, single = matmuls("cortex-m7")
    weight = np.arange(15, dtype="float32").reshape(5, 3)
    packed = pack_integers([weight], 4, single, True)
    assert (packed.dtype, packed.shape) == (np.int8, (1, 5, 4, 1))
    packed = pack_integers([weight], 4, dual, True)
    assert (packed.dtype, packed.shape) == (np.int8, (1, 2, 4, 4))
    np.testing.assert_array_equal(packed[0, :, 1], [[1, 4, 7, 10], [13, 0, 0, 0]])


@pytest.mark.parametrize(
    ("name", "instruction"), [("cortex-m4", "smlad"), ("cortex-m55", "vmlava.s16")]
)
@pytest.mark.parametrize("rows", ["m", 6])
def test_micro_controllers_add_up_a_group_in_one_register(name, instruction, rows, draw):
    target = targets.resolve(name)
    inputs = {"x": ((rows, 32), "uint8")}
    module = build_module(matmul_by(draw.integers(-127, 128, (32, 32))), inputs)
    planned = manager.to_plan(manager.to_kernels(module, target, {}), target, {})
    text = kernels.assembly(planned, target, threads=False)
    assert instruction in text
    # Sums of 64 bits take a carry.
    carries = re.search(r"\t(adc|sbc)s?\b", text) is not None
    assert carries == (rows == "m")


@pytest.mark.parametrize(("zeros", "instruction"), [((1,), True), ((32,), False)])
def test_only_rows_of_one_zero_point_are_shifted(zeros, instruction, assembly_for, draw):
    weight = relax.const(draw.integers(-127, 128, (32, 32)).astype("float32"))

    def graph(builder, x, zero):
        def less(x, zero):
            return te.compute(
                x.shape,
                lambda i, j: (
                    x[i, j].astype("float32") - zero[j if zeros[0] > 1 else 0].astype("float32")
                ),
            )

        return op.matmul(builder.emit_te(less, x, zero, primfunc_name_hint=CENTRED), weight)

    inputs = {"x": (("m", 32), "uint8"), "zero": (zeros, "uint8")}
    assert ("sdot" in assembly_for(graph, inputs, targets.resolve("aarch64-v8.2"))) == instruction


def matmuls(name):
    return VectorUnit.of(targets.resolve(name)).integer_dots


def test_groups_are_parts_of_the_depth_apart():
    (pair,) = matmuls("x86-64-v3")
    weight = np.arange(1, 16, dtype="float32").reshape(5, 3)
    packed = pack_integers([weight], 4, pair, False)
    assert packed.shape == (1, 3, 4, 2)
    assert packed.dtype == np.int8
    np.testing.assert_array_equal(packed[0, :, :3, 0], [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    np.testing.assert_array_equal(packed[0, :, :3, 1], [[10, 11, 12], [13, 14, 15], [0, 0, 0]])
    assert pack_integers([np.full((2, 2), 200.0, "float32")], 4, pair, False).dtype == np.int16


def test_groups_of_bytes_end_with_the_totals_of_their_columns():
    (four,) = matmuls("aarch64-v8.2")
    taps = [np.arange(-7, 8, dtype="float32").reshape(5, 3), np.full((5, 3), 100.0, "float32")]
    packed = pack_integers(taps, 4, four, False)
    assert packed.shape == (1, 2 * 2 + 1, 4, 4)
    np.testing.assert_array_equal(packed[0, :2, 0], [[-7, -1, 5, 0], [-4, 2, 0, 0]])
    np.testing.assert_array_equal(
        packed[0, -1].reshape(-1).view("<i4"), [*(taps[0] + taps[1]).sum(0), 0]
    )


@pytest.mark.parametrize("operator", ["MatMulInteger", "ConvInteger"])
def test_every_other_operand_is_quantized_at_run_time(operator):
    matrix = operator == "MatMulInteger"
    constants = {
        "from": np.array([0] if matrix else [0, 0]),
        "to": np.array([1_000_000] if matrix else [1_000_000] * 2),
        "axes": np.array([1] if matrix else [2, 3]),
        "steps": np.array([2] if matrix else [2, 2]),
        "w": np.random.default_rng(1)
        .integers(-100, 100, (32, 24) if matrix else (24, 32, 1, 1))
        .astype("int8"),
    }
    nodes = [
        helper.make_node("Slice", ["x", "from", "to", "axes", "steps"], ["half"]),
        helper.make_node("DynamicQuantizeLinear", ["half"], ["q", "scale", "zero"]),
        helper.make_node(operator, ["q", "w", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "scale"], ["y"]),
    ]
    spec = "float32[n,h,32]" if matrix else "float32[n,32,h,w]"
    model = model_of(nodes, {"x": spec}, constants, outputs=["y"])
    shapes = [(n, h, 32) if matrix else (n, 32, h, h + 1) for n, h in ((1, 1), (2, 6), (3, 33))]
    dims = dict.fromkeys("h" if matrix else "hw", (1, 40))
    assert_like_onnxruntime(model, [{"x": normal(*shape)} for shape in shapes], dims)
    target = targets.resolve("x86-64-v4-vnni")
    imported = import_model(model, CompileRequest.of())
    executable = generate(lower(imported.module, target, imported.ranges), target)
    assert "vpdpbusd" in assembly(executable)
