"""The stand-in's own operators beside ONNX Runtime's, and what either reference is not asked."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.verify.reference.onnx import ENGINES, ONNX, SPECIFICATION, engines_of
from compiler.verify.reference.stand_in import objections
from tests.compiler.ir.onnx.running import model_of

X = np.random.default_rng(0).standard_normal((2, 3, 9, 11)).astype(np.float32)
WINDOWS = [
    {"auto_pad": mode, "strides": strides, "ceil_mode": ceil, "dilations": [step] * 2, **more}
    for mode, strides, ceil, step, more in product(
        ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
        ([1, 1], [3, 2]),
        (0, 1),
        (1, 2),
        ({}, {"pads": [1, 0, 2, 1]}),
    )
    if mode == "NOTSET" or not more
]


def pool(op: str, outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    names = ["y", "indices"][:outputs]
    node = helper.make_node(op, ["x"], names, kernel_shape=[3, 3], **attributes)
    return model_of([node], {"x": "float32[n,3,h,w]"}, None, 22)


def answer(engine: str, model: onnx.ModelProto, folder: Path, x: Any = X) -> list[Any]:
    onnx.save(model, folder / "model.onnx")
    return list(ENGINES[engine](str(folder / "model.onnx")).run({"x": x}, {}).values())


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_pooling_is_as_onnxruntime_has_it_or_it_is_not_asked(
    window: dict[str, Any], tmp_path: Path
) -> None:
    """Before, 58 of such forms had other values or another shape by onnx's own operators."""
    departs = window["auto_pad"].startswith("SAME") and window["dilations"] != [1, 1]
    for model in (
        pool("MaxPool", 2, **window),
        pool("AveragePool", **window),
        pool("AveragePool", count_include_pad=1, **window),
        pool("LpPool", p=3, **window),
    ):
        assert engines_of(model) == (SPECIFICATION if departs else ONNX)
        if departs:
            continue
        want, got = (answer(engine, model, tmp_path) for engine in ONNX)
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [("GlobalMaxPool", {}), ("GlobalAveragePool", {}), ("GlobalLpPool", {"p": 3})],
)
def test_planes_of_every_rank_are_pooled(
    op: str, attributes: dict[str, Any], rank: int, tmp_path: Path
) -> None:
    axes = ",".join("abc"[: rank - 2])
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    model = model_of([node], {"x": f"float32[n,3,{axes}]"}, None, 18)
    x = X[..., None].reshape(2, 3, *(9, 11, 1)[: rank - 3], -1)
    want, got = (answer(engine, model, tmp_path, x)[0] for engine in ONNX)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert got.shape == (2, 3, *[1] * (rank - 2))


def test_windows_of_same_padding_cover_every_position_however_dilated(tmp_path: Path) -> None:
    model = pool("AveragePool", auto_pad="SAME_LOWER", dilations=[2, 2], count_include_pad=1)
    (got,) = answer("onnx.reference", model, tmp_path)
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (2, 2), (2, 2)))
    want = sum(padded[:, :, i : i + 9, j : j + 11] for i, j in product((0, 2, 4), repeat=2)) / 9
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_storage_order_counts_columns_first(tmp_path: Path) -> None:
    _, rows = answer("onnx.reference", pool("MaxPool", 2), tmp_path)
    _, columns = answer("onnx.reference", pool("MaxPool", 2, storage_order=1), tmp_path)
    plane, flat = np.divmod(rows, 99)
    np.testing.assert_array_equal(columns, plane * 99 + flat % 11 * 9 + flat // 11)
    want = answer("onnxruntime", pool("MaxPool", 2, storage_order=1), tmp_path)[1]
    np.testing.assert_array_equal(columns, want)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_goes_over_all_channels(size: int, tmp_path: Path) -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.3, beta=0.6, bias=1.2)
    model = model_of([node], {"x": "float32[n,3,h,w]"}, None, 13)
    want, got = (answer(engine, model, tmp_path)[0] for engine in ONNX)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_norms_are_of_magnitudes(p: int, tmp_path: Path) -> None:
    node = helper.make_node("LpNormalization", ["x"], ["y"], p=p, axis=2)
    model = model_of([node], {"x": "float32[n,3,h,w]"}, None, 22)
    x = X.copy()
    x[0, 0] = 0
    want, got = (answer(engine, model, tmp_path, x)[0] for engine in ONNX)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_form_that_the_stand_in_gets_wrong_is_refused_with_the_reason(tmp_path: Path) -> None:
    inputs = {"x": "float32[n,3,h,w]", "grid": "float32[n,4,5,2]"}
    for mode, padding in product(("cubic", "linear"), ("border", "zeros")):
        node = helper.make_node(
            "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, name="look"
        )
        model = model_of([node], inputs, None, 20)
        refused = (mode, padding) == ("cubic", "border")
        assert bool(objections(model)) is refused
        onnx.save(model, tmp_path / "model.onnx")
        if refused:
            with pytest.raises(ValueError, match=r"look \(GridSample\)"):
                ENGINES["onnx.reference"](str(tmp_path / "model.onnx"))


def test_onnxruntime_is_not_asked_of_unpooling_to_a_given_shape() -> None:
    inputs = {"x": "float32[n,1,2,2]", "i": "int64[n,1,2,2]"}
    node = helper.make_node("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2])
    assert engines_of(model_of([node], inputs, {"s": np.array([1, 1, 5, 5])})) == SPECIFICATION
    node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2, 2])
    assert engines_of(model_of([node], inputs)) == ONNX
