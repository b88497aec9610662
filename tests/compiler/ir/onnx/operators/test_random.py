"""Random operators, compiled: the numbers of the generator, at any shape and by any seed."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from compiler.ir.graph.draws import SEED, Draw, Law, stream_of
from compiler.verify.reference.numbers import numbers
from tests.compiler.ir.onnx.running import Built, build, model_of

NODE = helper.make_node
SHAPES = [(0, 3), (1, 1), (7, 13), (64, 257)]
CODES = {"float16": 10, "bfloat16": 16, "float32": 1, "float64": 11}


def run(built: Built, seed: int = 0, **inputs: np.ndarray) -> list[np.ndarray]:
    return built.run({**inputs, SEED.name: np.array(seed)})


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers_are_the_generators_bit_for_bit(dtype: str) -> None:
    node = NODE("RandomUniformLike", ["x"], ["y"], dtype=CODES[dtype])
    built = build(model_of([node], {"x": "float32[n,m]"}))
    draw = Draw(stream_of("node y"), Law.UNIFORM, dtype)
    for shape in SHAPES:
        for seed in (0, -3, 1 << 40):
            wanted = numbers(draw, seed, int(np.prod(shape))).reshape(shape).astype(dtype)
            np.testing.assert_array_equal(run(built, seed, x=zeros(*shape))[0], wanted)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float16", 2e-3), ("float32", 2e-6), ("float64", 1e-14)]
)
def test_normal_numbers_are_near_the_generators(dtype: str, tolerance: float) -> None:
    node = NODE("RandomNormalLike", ["x"], ["y"], dtype=CODES[dtype], mean=1.0, scale=0.5)
    built = build(model_of([node], {"x": "float32[n,m]"}))
    draw = Draw(stream_of("node y"), Law.NORMAL, dtype, 1.0, 0.5)
    for shape in SHAPES:
        (got,) = run(built, 5, x=zeros(*shape))
        wanted = numbers(draw, 5, int(np.prod(shape))).reshape(shape)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def test_a_given_shape_bounds_and_the_dtype_of_what_it_resembles() -> None:
    nodes = [
        NODE("RandomUniform", [], ["y"], shape=[3, 50], low=-2.0, high=4.0),
        NODE("RandomNormalLike", ["x"], ["z"]),
    ]
    y, z = run(build(model_of(nodes, {"x": "float64[n]"})), x=np.zeros(3))
    assert (y.shape, z.dtype) == ((3, 50), np.dtype("float64"))
    assert y.min() >= -2
    assert y.max() < 4
    assert y.std() == pytest.approx(6 / 12**0.5, rel=0.1)


def test_nodes_draw_for_themselves_unless_their_seeds_are_equal() -> None:
    nodes = [
        NODE("RandomNormalLike", ["x"], ["a"]),
        NODE("RandomNormalLike", ["x"], ["b"]),
        NODE("RandomNormalLike", ["x"], ["c"], seed=1.5),
        NODE("RandomNormalLike", ["x"], ["d"], seed=1.5),
    ]
    a, b, c, d = run(build(model_of(nodes, {"x": "float32[n]"})), x=zeros(100))
    assert (a != b).all()
    assert (a != c).all()
    np.testing.assert_array_equal(c, d)


def test_bernoulli() -> None:
    built = build(model_of([NODE("Bernoulli", ["x"], ["y"], dtype=7)], {"x": "float32[n,m]"}))
    chance = np.tile(np.array([0, 0.25, 0.7, 1], np.float32), (20000, 1))
    (y,) = run(built, x=chance)
    assert y.dtype == np.int64
    assert set(np.unique(y)) == {0, 1}
    np.testing.assert_allclose(y.mean(axis=0), chance[0], atol=5 * (0.25 / 20000) ** 0.5)
    assert y[:, 0].max() == 0
    assert y[:, 3].min() == 1


@pytest.mark.parametrize("opset", [11, 15])
def test_multinomial(opset: int) -> None:
    node = NODE("Multinomial", ["x"], ["y"], sample_size=20000)
    built = build(model_of([node], {"x": "float32[n,3]"}, opset=opset))
    chances = np.array([[0.2, 0.5, 0.3], [1, 0, 0], [0, 0, 1]])
    with np.errstate(divide="ignore"):
        (y,) = run(built, x=(np.log(chances) + 4).astype(np.float32))
    assert (y.dtype, y.shape) == (np.dtype("int32"), (3, 20000))
    shares = np.stack([np.bincount(row, minlength=3) / 20000 for row in y])
    np.testing.assert_allclose(shares, chances, atol=5 * (0.25 / 20000) ** 0.5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dropout_that_a_run_switches_on(dtype: str) -> None:
    node = NODE("Dropout", ["x", "ratio", "training"], ["y", "mask"])
    model = model_of([node], {"x": f"{dtype}[n]", "ratio": "float32[]", "training": "bool[]"})
    built = build(model)
    x = (np.arange(20000) % 7 + 1).astype(dtype)
    for ratio in (0.0, 0.25, 0.9):
        inputs: Any = {"x": x, "ratio": np.float32(ratio), "training": np.array(True)}
        y, mask = run(built, **inputs)
        share = np.asarray(1 - ratio).astype(dtype)
        np.testing.assert_allclose(y, np.where(mask, x / share, 0), rtol=2e-3)
        assert mask.mean() == pytest.approx(1 - ratio, abs=5 * (0.25 / 20000) ** 0.5)
        y, mask = run(built, **{**inputs, "training": np.array(False)})
        np.testing.assert_array_equal(y, x)
        assert mask.all()


def test_the_seed_is_an_input_only_of_a_model_that_draws() -> None:
    model = model_of([NODE("RandomNormal", [], ["y"], shape=[2])], {"x": "float32[n]"})
    assert build(model).imported.inputs[-1] == SEED
    assert SEED.default == 0
    plain = model_of([NODE("Neg", ["x"], ["y"])], {"x": "float32[n]"})
    assert [spec.name for spec in build(plain).imported.inputs] == ["x"]


def test_a_branch_draws() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [NODE(operator, ["x"], [name])], name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for name, operator in (("then", "RandomNormalLike"), ("else", "Neg"))
    }
    model = model_of([NODE("If", ["c"], ["y"], **branches)], {"x": "float32[n]", "c": "bool[]"})
    (y,) = run(build(model), 2, x=zeros(40), c=np.array(True))
    wanted = numbers(Draw(stream_of("node then"), Law.NORMAL, "float32"), 2, 40)
    np.testing.assert_allclose(y, wanted, atol=2e-6)


def test_a_loop_that_would_repeat_its_numbers_is_refused() -> None:
    infos = [
        helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, ["n"]),
    ]
    body = helper.make_graph(
        [NODE("RandomNormalLike", ["s"], ["t"]), NODE("Identity", ["go"], ["on"])],
        "body",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in ("on", "t")],
    )
    model = model_of([NODE("Loop", ["k", "", "x"], ["y"], body=body)],
                     {"x": "float32[n]", "k": "int64[]"})  # fmt: skip
    with pytest.raises(ImportFailed, match="same numbers in every iteration"):
        build(model)


def test_integers_are_no_random_numbers() -> None:
    with pytest.raises(ImportFailed, match="floats"):
        build(model_of([NODE("RandomUniformLike", ["x"], ["y"])], {"x": "int64[n]"}))
