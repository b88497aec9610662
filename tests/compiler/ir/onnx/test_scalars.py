"""Functions of single elements: bits, modulo, activations, casts, at the edges of their dtypes."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.compiler.ir.onnx.running import assert_close, assert_like_onnxruntime, build, model_of

NODE = helper.make_node
EDGES = np.array(
    [-np.inf, -100, -20, -1, -1e-6, -0.0, 0, 1e-6, 0.3, 1, 20, 100, np.inf, np.nan], np.float32
)
ACTIVATIONS = ["Elu", "Selu", "Celu", "Softplus", "Softsign", "Mish"]


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_activations_at_the_edges(op: str) -> None:
    built = build(model := model_of([NODE(op, ["x"], ["y"])], {"x": "float32[n]"}, opset=22))
    finite = EDGES[np.isfinite(EDGES)]
    with np.errstate(over="ignore"):
        wanted = ReferenceEvaluator(
            model_of([NODE(op, ["x"], ["y"])], {"x": "float64[n]"}, opset=22)
        ).run(None, {"x": finite.astype("f8")})
    (got,) = built.run({"x": finite})
    np.testing.assert_allclose(got, wanted[0], rtol=1e-5, atol=1e-12)
    assert np.isnan(built.run({"x": np.array([np.nan], np.float32)})[0]).all(), model


def test_shrink_of_floats_and_integers() -> None:
    nodes = [
        NODE("Shrink", ["x"], ["y"], bias=1.5, lambd=1.5),
        NODE("Shrink", ["i"], ["z"], bias=1.0, lambd=2.0),
    ]
    model = model_of(nodes, {"x": "float32[n]", "i": "int32[n]"})
    assert_like_onnxruntime(
        model, [{"x": np.arange(-3, 4, dtype=np.float32), "i": np.arange(-3, 4, dtype=np.int32)}]
    )


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_modulo_of_integers(dtype: str, fmod: int) -> None:
    x, y = (
        np.arange(-12 if dtype[0] == "i" else 0, 12).astype(dtype),
        np.array([5] if dtype[0] == "u" else [-5], dtype),
    )
    built = build(
        model_of(
            [NODE("Mod", ["x", "y"], ["z"], fmod=fmod)], {"x": f"{dtype}[n]", "y": f"{dtype}[1]"}
        )
    )
    assert_close(built.run({"x": x, "y": y}), [(np.fmod if fmod else np.mod)(x, y)], ["z"], 0)


@pytest.mark.parametrize("fmod", [0, 1])
def test_modulo_of_floats(fmod: int) -> None:
    x = np.array([5.5, -5.5, 5.5, -5.5, 1e20, 0.0, -0.0, np.inf, 3, 3, -3], np.float32)
    y = np.array([2, 2, -2, -2, 3, -2, 2, 2, 0, np.inf, np.inf], np.float32)
    built = build(
        model_of(
            [NODE("Mod", ["x", "y"], ["z"], fmod=fmod)],
            {"x": "float32[n]", "y": "float32[n]"},
            opset=28,
        )
    )
    with np.errstate(invalid="ignore"):
        wanted = (np.fmod if fmod else np.mod)(x, y)
    (got,) = built.run({"x": x, "y": y})
    np.testing.assert_array_equal(got, wanted)
    if not fmod:
        number = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(wanted[number]))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint32"])
def test_shifts(dtype: str, direction: str) -> None:
    built = build(
        model := model_of(
            [NODE("BitShift", ["x", "n"], ["y"], direction=direction)],
            {"x": f"{dtype}[a]", "n": f"{dtype}[a]"},
            opset=28,
        )
    )
    x = np.array([1, 100, np.iinfo(dtype).min, np.iinfo(dtype).max, 77, 3], dtype)
    feed = {"x": x, "n": np.array([0, 1, 3, 7, 64, 200 if dtype == "uint8" else 100], dtype)}
    assert_close(built.run(feed), ReferenceEvaluator(model).run(None, feed), ["y"], 0)


def test_bits() -> None:
    nodes = [NODE(f"Bitwise{name}", ["x", "y"], [name]) for name in ("And", "Or", "Xor")] + [
        NODE("BitwiseNot", ["x"], ["not"])
    ]
    model = model_of(nodes, {"x": "int16[a,b]", "y": "int16[b]"})
    random = np.random.default_rng(0)
    feeds = [
        {
            "x": random.integers(-999, 999, s, np.int16),
            "y": random.integers(-999, 999, s[1:], np.int16),
        }
        for s in ((3, 5), (1, 1), (0, 2))
    ]
    assert_like_onnxruntime(model, feeds)


def test_the_same_bits_as_another_dtype() -> None:
    nodes = [NODE("BitCast", ["x"], ["y"], to=6), NODE("BitCast", ["y"], ["z"], to=1)]
    x = np.array([1.5, -0.0, np.inf], np.float32)
    y, z = build(model_of(nodes, {"x": "float32[n]"}, opset=26)).run({"x": x})
    np.testing.assert_array_equal(y, x.view(np.int32))
    np.testing.assert_array_equal(z, x)


@pytest.mark.parametrize("source", ["bool", "int64", "uint8", "float16", "float64"])
def test_casts(source: str) -> None:
    codes = {
        "bool": 9,
        "int8": 3,
        "int32": 6,
        "uint16": 4,
        "float16": 10,
        "float32": 1,
        "float64": 11,
    }
    model = model_of(
        [NODE("Cast", ["x"], [f"y_{name}"], to=code) for name, code in codes.items()],
        {"x": f"{source}[n]"},
    )
    assert_like_onnxruntime(model, [{"x": np.array([0, 1, 2, 77, 100]).astype(source)}])


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_not_zero_is_true(source: str) -> None:
    """NaN too."""
    model = model_of([NODE("Cast", ["x"], ["y"], to=9)], {"x": f"{source}[n]"})
    x = np.array([0, -0.0, 1, -2, np.nan, -np.nan, np.inf, 1e-5]).astype(source)
    (y,) = build(model).run({"x": x})
    np.testing.assert_array_equal(y, [False, False, *[True] * 6])


def test_booleans_compare() -> None:
    model = model_of([NODE("Equal", ["x", "y"], ["z"])], {"x": "bool[a,b]", "y": "bool[b]"})
    assert_like_onnxruntime(model, [{"x": np.array([[True, False]]), "y": np.array([True, True])}])


def test_a_table_of_constants_beside_a_dim() -> None:
    nodes = [
        NODE("Shape", ["x"], ["dims"]),
        NODE("Gather", ["dims", "first"], ["n"]),
        NODE("Less", ["table", "n"], ["less"]),
        NODE("Sub", ["table", "n"], ["apart"]),
        NODE("Where", ["even", "n", "table"], ["chosen"]),
    ]
    table = np.arange(10, 0, -1, dtype=np.int64)[:, None] * np.arange(1, 9, dtype=np.int64)
    model = model_of(
        nodes,
        {"x": "float32[n]"},
        {"table": table, "even": table % 2 == 0, "first": np.array(0)},
        outputs=["less", "apart", "chosen"],
    )
    assert_like_onnxruntime(model, [{"x": np.zeros(n, np.float32)} for n in (1, 7, 80)])


ARITHMETIC = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide}


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_with_a_constant_keeps_infinities_and_signs_of_zero(
    op: str, shape: tuple[int, ...]
) -> None:
    x = np.stack([EDGES, EDGES[::-1]])
    numbers = [0.0, -0.0, 1.0, -1.0, 6.0, np.inf]
    constants = {f"c{i}": np.full(shape, value, "f4") for i, value in enumerate(numbers)}
    nodes = [NODE(op, ["x", name], [f"y_{name}"]) for name in constants]
    outputs = [f"y_{name}" for name in constants]
    built = build(model_of(nodes, {"x": "float32[n,14]"}, constants, outputs=outputs))
    for got, constant in zip(built.run({"x": x}), constants.values(), strict=True):
        with np.errstate(all="ignore"):
            expected = ARITHMETIC[op](x, constant)
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got, expected)
        real = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[real], np.signbit(expected)[real])
