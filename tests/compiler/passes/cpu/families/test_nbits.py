"""Matmuls by block-wise quantized weights in all forms, beside float64 and ONNX Runtime."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.ir.ops.quantized.block_matmul import Blocks, dequantize
from compiler.passes.cpu.families.nbits.match import instruction_of
from compiler.passes.pack.nbits import pack_panels
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import normal, session_of
from tests.compiler.passes.lowered import build
from tests.compiler.passes.processors import nearest

ROWS = (0, 1, 2, 3, 5, 7, 8, 9, 12, 13, 16, 17, 64, 67)


def table(bits: int, block: int, depth: int, columns: int, zeros: str, seed: int = 0) -> Blocks:
    random = np.random.default_rng(seed)
    blocks = -(-depth // block)
    points: Any = None
    if zeros == "bytes":
        points = random.integers(0, 1 << bits, (columns, blocks)).astype(np.uint8)
    elif zeros == "floats":
        points = (random.random((columns, blocks)) * (1 << bits)).astype(np.float32)
    numbers = random.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = (random.random((columns, blocks)) * 0.1).astype(np.float32)
    if zeros in ("halves", "least"):
        # Some of them below the least normal float16.
        scales = (scales * 10.0 ** random.integers(-5, 1, scales.shape)).astype(np.float16)
        scales = scales.astype(np.float32)
    if zeros == "least":
        least = (random.standard_normal((columns, blocks)) * 0.1).astype(np.float16)
        flat = (scales == 0) | (random.random((columns, blocks)) < 0.2)
        numbers[flat] = 0
        points = np.where(flat, np.float32(-1), -least / np.where(flat, np.float32(1), scales))
        scales = np.where(flat, least.astype(np.float32), scales)
    return Blocks(bits, block, depth, numbers, scales, points)


def model_of(weights: Blocks, **attributes: Any) -> onnx.ModelProto:
    """One MatMulNBits node."""
    constants = {"w": weights.numbers, "s": weights.scales}
    if weights.zeros is not None and weights.zeros.dtype == np.uint8:
        constants["z"] = pack_zeros(weights.zeros, weights.bits)
    elif weights.zeros is not None:
        constants["z"] = weights.zeros
    return one_node(
        "MatMulNBits",
        {"x": f"float32[n,{weights.depth}]"},
        constants,
        "x w s z" if "z" in constants else "x w s",
        K=weights.depth,
        N=len(weights.numbers),
        bits=weights.bits,
        block_size=weights.block,
        **attributes,
    )


def pack_zeros(zeros: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return zeros
    even = np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2)))
    return even[:, ::2] | even[:, 1::2] << 4


def quantize_dequantize(x: np.ndarray, block: int, dtype: Any = np.float32) -> np.ndarray:
    """float64 rows whose blocks are rounded to 8 bits, of products by a block's inverse in float32,
    or exact ones, as a multiply-add has them: near a half they differ.
    """
    blocks = -(-x.shape[1] // block)
    filled = np.zeros((len(x), blocks * block), np.float32)
    filled[:, : x.shape[1]] = x
    filled = filled.reshape(len(x), blocks, block)
    greatest = np.abs(filled).max(2, keepdims=True)
    scale = greatest / np.float32(127)
    inverse = np.where(greatest > 0, np.float32(127) / np.where(greatest > 0, greatest, 1), 0)
    integers = np.rint(filled * inverse.astype(np.float32).astype(dtype)).astype(np.float64)
    return (integers * scale).reshape(len(x), blocks * block)[:, : x.shape[1]]


def assert_close_quantized(got: np.ndarray, x: np.ndarray, block: int, exact: np.ndarray) -> None:
    """Beside the rows rounded in either way."""
    wanted = [quantize_dequantize(x, block, dtype) @ exact for dtype in (np.float32, np.float64)]
    close(got, min(wanted, key=lambda want: np.abs(got - want).max(initial=0)))


FORMS = [
    (4, 32, 96, 70, "none"),
    (4, 16, 40, 33, "bytes"),
    (4, 32, 37, 5, "bytes"),
    (4, 64, 130, 64, "floats"),
    (4, 128, 256, 40, "bytes"),
    (8, 32, 96, 70, "none"),
    (8, 16, 41, 31, "bytes"),
    (8, 128, 131, 64, "bytes"),
    (4, 32, 96, 70, "halves"),
    (4, 32, 130, 33, "least"),
    (8, 32, 64, 31, "halves"),
    (8, 16, 41, 40, "least"),
    # Deeper than what of a panel is unpacked at a time.
    (4, 32, 1041, 40, "bytes"),
    (8, 64, 1100, 33, "none"),
    # Sums of a block beyond 22 bits.
    (8, 256, 513, 33, "none"),
]


def close(got: np.ndarray, want: np.ndarray, tolerance: float = 2e-6) -> None:
    assert got.shape == want.shape
    if got.size:
        span = np.abs(want).max()
        assert np.abs(got - want).max() <= tolerance * span * 10, np.abs(got - want).max() / span


@pytest.mark.parametrize(("bits", "block", "depth", "columns", "zeros"), FORMS)
def test_floats_for_every_number_of_rows(
    bits: int, block: int, depth: int, columns: int, zeros: str
) -> None:
    weights = table(bits, block, depth, columns, zeros)
    built = build(model_of(weights), {"n": (0, None)})
    exact = dequantize(weights).astype(np.float64).T
    for rows in ROWS:
        x = normal(rows, depth)
        (got,) = built.run({"x": x})
        close(got, x.astype(np.float64) @ exact)


@pytest.mark.parametrize("target", [None, "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_row_has_the_same_bits_in_any_company(target: str | None, form: tuple[Any, ...]) -> None:
    weights = table(*form)
    x = normal(max(ROWS), weights.depth)
    for attributes in ({}, {"accuracy_level": 4}):
        unit = HOST if target is None else nearest(target)
        built = build(model_of(weights, **attributes), {"n": (1, None)}, unit)
        alone = np.concatenate([built.run({"x": row[None]})[0] for row in x])
        for rows in ROWS[1:]:
            (got,) = built.run({"x": x[:rows]})
            np.testing.assert_array_equal(got.view(np.int32), alone[:rows].view(np.int32))


@pytest.mark.parametrize(("bits", "block", "depth", "columns", "zeros"), FORMS)
def test_rows_that_may_be_quantized(
    bits: int, block: int, depth: int, columns: int, zeros: str
) -> None:
    weights = table(bits, block, depth, columns, zeros)
    built = build(model_of(weights, accuracy_level=4), {"n": (0, None)})
    exact = dequantize(weights).astype(np.float64).T
    for rows in ROWS:
        x = normal(rows, depth)
        x[: rows // 2, :block] = 0
        (got,) = built.run({"x": x})
        assert_close_quantized(got, x, block, exact)


@pytest.mark.parametrize("zeros", ["none", "bytes"])
def test_quantized_like_onnxruntime(zeros: str) -> None:
    weights = table(4, 32, 256, 96, zeros)
    model = model_of(weights, accuracy_level=4)
    built, session = build(model, {"n": (1, None)}), session_of(model)
    for rows in (1, 4, 9):
        x = normal(rows, 256, seed=rows)
        (got,), (want,) = built.run({"x": x}), session.run(None, {"x": x})
        close(got, want, 1e-5)


@pytest.mark.parametrize(("bits", "block"), [(4, 128), (8, 128), (8, 256)])
@pytest.mark.parametrize("zeros", ["none", "bytes"])
def test_the_greatest_totals_of_a_block(bits: int, block: int, zeros: str) -> None:
    """All numbers of one sign by the greatest integers: the bits of a real hold 22 bits of them."""
    for numbers, value in ((0, 1.0), (0, -1.0), (0xFF, 1.0), (0xFF, -1.0)):
        weights = table(bits, block, 2 * block, 40, zeros)
        weights.numbers[:] = numbers
        if weights.zeros is not None:
            weights.zeros[:] = 0 if numbers else (1 << bits) - 1
        built = build(model_of(weights, accuracy_level=4), {"n": (1, None)})
        exact = dequantize(weights).astype(np.float64).T
        for rows in (1, 6, 8, 17):
            x = np.full((rows, weights.depth), value, np.float32)
            close(built.run({"x": x})[0], x.astype(np.float64) @ exact)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row_and_is_seen(value: float) -> None:
    weights = table(4, 32, 96, 40, "none")
    built = build(model_of(weights, accuracy_level=4), {"n": (1, None)})
    for rows in (1, 7, 19):
        x = normal(rows, 96)
        x[rows // 2, 40] = value
        (got,) = built.run({"x": x})
        assert not np.isfinite(got[rows // 2]).any()
        assert np.isfinite(np.delete(got, rows // 2, 0)).all()


def test_magnitudes_near_the_greatest_are_right_or_seen() -> None:
    """Where integer sums begin at the bits of a real, a scale times these overflows first."""
    weights = table(4, 32, 96, 40, "none")
    built = build(model_of(weights, accuracy_level=4), {"n": (1, None)})
    for rows in (1, 7, 19):
        x = normal(rows, 96)
        x[rows // 2, 40] = 1e36
        (got,), exact = built.run({"x": x}), x.astype(np.float64) @ dequantize(weights).T
        if np.isfinite(got[rows // 2]).any():
            close(got[rows // 2], exact[rows // 2])
        assert np.isfinite(np.delete(got, rows // 2, 0)).all()


def test_signed_numbers_in_panels_stand_for_the_same() -> None:
    """8-bit weights and zero points less 128, as instructions of Arm take them."""
    weights = table(8, 16, 32, 5, "bytes")
    plain, signed = pack_panels(weights, 4), pack_panels(weights, 4, signed=True)
    assert signed.numbers.dtype == np.int8
    assert (signed.numbers.astype(int) + 128 == plain.numbers).all()
    assert signed.zeros is not None
    assert plain.zeros is not None
    assert (signed.zeros.astype(int) + 128 == plain.zeros).all()
    floats = pack_panels(replace(weights, zeros=weights.scales), 4, signed=True)
    assert floats.zeros is not None
    assert floats.zeros[0, 0, 0] == weights.scales[0, 0] - np.float32(128)


def test_large_matrices_are_laid_out_in_parts() -> None:
    weights = table(4, 16, 16, 1100, "none")
    numbers = pack_panels(weights, 4).numbers
    assert numbers.shape == (275, 1, 2, 4, 4)
    first = weights.numbers[1099, 0]
    assert numbers[274, 0, 0, 3].tolist() == [
        int(first[i // 2] >> 4 * (i % 2) & 15) | int(first[(i + 4) // 2] >> 4 * (i % 2) & 15) << 4
        for i in range(4)
    ]


def test_scales_that_are_float16_are_kept_as_such() -> None:
    panels = pack_panels(table(4, 32, 64, 5, "halves"), 4)
    assert panels.scales is not None
    assert panels.scales.dtype == np.uint16
    least = pack_panels(table(4, 32, 64, 5, "least"), 4)
    assert least.zeros is not None
    assert least.zeros.dtype == np.uint16
    wide = table(4, 32, 64, 5, "floats")
    panels = pack_panels(wide, 4)
    assert panels.scales is not None
    assert panels.zeros is not None
    assert (panels.scales.dtype, panels.zeros.dtype) == (np.float32, np.float32)
    assert wide.scales is not None
    # What float16 cannot hold, and an infinite product.
    large = replace(wide, scales=np.full_like(wide.scales, 65536))
    panels = pack_panels(large, 4)
    assert panels.scales is not None
    assert (panels.scales[:, :, 0] == 65536).all()


@pytest.mark.parametrize(("bits", "depth", "zeros"), [(4, 64, "bytes"), (8, 75, "least")])
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_processors_without_the_instruction_round_as_well(
    target: str, bits: int, depth: int, zeros: str
) -> None:
    weights = table(bits, 32, depth, 40, zeros)
    machine: Target = replace(nearest(target), isa=())
    built = build(model_of(weights, accuracy_level=4), {"n": (0, None)}, machine)
    for rows in (0, 1, 7, 19):
        x = normal(rows, depth)
        x[: rows // 2, :32] = 0
        (got,) = built.run({"x": x})
        assert_close_quantized(got, x, 32, dequantize(weights).astype(np.float64).T)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize(("bits", "block", "numbers"), [
    (4, 32, 0xFF), (4, 128, 0xFF), (4, 16, 0), (8, 32, 0), (8, 16, 0xFF), (8, 128, 0),
])  # fmt: skip
def test_the_greatest_multiplications_of_bytes_fit_accumulators(
    target: str, bits: int, block: int, numbers: int
) -> None:
    """Sums of pairs have 16 bits: 15 times 127 or -128 times -127, as often as they come."""
    weights = table(bits, block, 4 * block - 3, 40, "none")
    weights.numbers[:] = numbers
    machine = nearest(target)
    built = build(model_of(weights, accuracy_level=4), {"n": (0, None)}, machine)
    for rows, value in ((1, 1.0), (3, -1.0), (5, 0.25)):
        x = np.full((rows, weights.depth), value, np.float32)
        close(
            built.run({"x": x})[0], x.astype(np.float64) @ dequantize(weights).astype(np.float64).T
        )


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize(("bits", "block", "depth", "columns", "zeros"), FORMS)
def test_quantized_rows_by_pairs_of_bytes(
    target: str, bits: int, block: int, depth: int, columns: int, zeros: str
) -> None:
    weights = table(bits, block, depth, columns, zeros)
    machine = nearest(target)
    instruction = instruction_of(VectorUnit.of(machine))
    assert instruction is not None
    built = build(model_of(weights, accuracy_level=4), {"n": (0, None)}, machine)
    for rows in ROWS:
        x = normal(rows, depth)
        (got,) = built.run({"x": x})
        assert_close_quantized(got, x, block, dequantize(weights).astype(np.float64).T)


def test_what_follows_and_several_axes_of_rows() -> None:
    weights = table(4, 32, 64, 48, "none")
    model = model_of(weights)
    model.graph.input[0].CopyFrom(
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m", 64])
    )
    node = model.graph.node[0]
    node.output[0] = "sums"
    model.graph.node.append(onnx.helper.make_node("Relu", ["sums"], ["y"]))
    built = build(model, {"n": (0, None), "m": (1, None)})
    for shape in ((2, 3), (1, 1), (3, 5)):
        x = normal(*shape, 64)
        exact = x.astype(np.float64) @ dequantize(weights).astype(np.float64).T
        close(built.run({"x": x})[0], np.maximum(exact, 0))
