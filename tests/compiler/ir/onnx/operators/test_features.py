"""Preparation of features against ONNX Runtime, and numpy where it lacks a type."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_linear_models import FEATURES, feeds, model_of, numbers
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, normal, session_of

INTEGERS = [{"x": np.arange(n * FEATURES).reshape(n, FEATURES) % 4} for n in (0, 1, 7)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_scaler(dtype: str) -> None:
    kind = {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    one = {"offset": [0.5], "scale": [3.0]}
    each = {"offset": numbers(FEATURES), "scale": numbers(FEATURES)}
    for attributes in (one, each):
        assert_like_onnxruntime(model_of("Scaler", attributes, kind), feeds(dtype))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    rows = [*feeds(), {"x": np.zeros((3, FEATURES), np.float32)}]
    assert_like_onnxruntime(model_of("Normalizer", {"norm": norm}), rows)


@pytest.mark.parametrize("missing", [np.nan, 2.0])
@pytest.mark.parametrize("fill", [[7.5], [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_imputer(missing: float, fill: list[float]) -> None:
    x = np.array([[np.nan, 2, 3, 2, 5], [1, np.nan, np.nan, 4, 2]], np.float32)
    attributes = {"imputed_value_floats": fill, "replaced_value_float": missing}
    rows = [{"x": x}, {"x": x[:1]}, {"x": x[:0]}]
    assert_like_onnxruntime(model_of("Imputer", attributes), rows)


def test_imputer_of_integers() -> None:
    attributes = {"imputed_value_int64s": [9], "replaced_value_int64": 2}
    assert_like_onnxruntime(model_of("Imputer", attributes, "INT64"), INTEGERS)


def test_feature_vectorizer() -> None:
    """The second input has a column too many, the third one too few."""
    kinds = {"a": ("FLOAT", 2), "b": ("INT64", 3), "c": ("DOUBLE", 1)}
    node = helper.make_node(
        "FeatureVectorizer", list(kinds), ["y"], domain="ai.onnx.ml", inputdimensions=[2, 2, 2]
    )
    infos = [
        helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), ["n", width])
        for name, (kind, width) in kinds.items()
    ]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "join", infos, [output])
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 19)]
    built = build(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    for n in (0, 1, 7):
        a, b, c = normal(n, 2), np.arange(3 * n).reshape(n, 3), normal(n, 1, dtype="float64")
        wanted = np.concatenate([a, b[:, :2], c, np.zeros((n, 1))], 1).astype(np.float32)
        np.testing.assert_array_equal(built.run({"a": a, "b": b, "c": c})[0], wanted)


@pytest.mark.parametrize("dtype", ["INT64", "FLOAT", "DOUBLE"])
def test_one_hot_encoder(dtype: str) -> None:
    x = model_of("OneHotEncoder", {"cats_int64s": [3, 0, 2], "zeros": 1}, dtype)
    kind = helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, dtype))
    assert_like_onnxruntime(x, [{"x": feed["x"].astype(kind)} for feed in INTEGERS])


def test_one_hot_encoder_of_strangers() -> None:
    """An unknown element fails the run."""
    built = build(model_of("OneHotEncoder", {"cats_int64s": [0, 1, 2], "zeros": 0}, "INT64"))
    known = np.arange(FEATURES)[None] % 3
    np.testing.assert_array_equal(built.run({"x": known})[0], np.eye(3, dtype=np.float32)[known])
    with pytest.raises(Exception, match="atch"):
        built.run({"x": known + 1})


ENCODERS: list[dict[str, Any]] = [
    {"keys_int64s": [3, 0, 2], "values_floats": [0.5, -1.0, 8.0], "default_float": 4.0},
    {"keys_int64s": [3, 0, 2], "values_int64s": [10, 20, 30]},
    {"keys_floats": [0.0, np.nan, 1.0, 1.0], "values_int64s": [1, 2, 3, 3], "default_int64": 9},
    {"keys_floats": [2.0], "values_floats": [0.25]},
]


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("attributes", ENCODERS)
def test_label_encoder(attributes: dict[str, Any], version: int) -> None:
    integral = "keys_int64s" in attributes
    model = model_of("LabelEncoder", attributes, "INT64" if integral else "FLOAT")
    model.opset_import[0].version = version
    x = np.array([[0, 1, 2, 3, 4], [-1, 3, 2, 2, 0], [0.5, np.nan, 1, 1, 3]])
    x = x[:2].astype(np.int64) if integral else x.astype(np.float32)
    assert_like_onnxruntime(model, [{"x": x}, {"x": x[:1]}, {"x": x[:0]}])


def test_label_encoder_of_tensors() -> None:
    """Opset 4 takes any numbers; many keys are searched, not compared one by one."""
    keys = np.random.default_rng(0).permutation(200) - 100.0
    attributes = {
        "keys_tensor": numpy_helper.from_array(keys),
        "values_tensor": numpy_helper.from_array(np.arange(200, dtype=np.int16)),
        "default_tensor": numpy_helper.from_array(np.array([-7], np.int16)),
    }
    model = model_of("LabelEncoder", attributes, "DOUBLE")
    model.opset_import[0].version = 4
    x = np.array([[-101, -100, 0, 99, 100], [5, 6, 7, 7.5, np.nan]])
    table = dict(zip(keys.tolist(), range(200), strict=True))
    wanted = np.array([[table.get(item, -7) for item in row] for row in x.tolist()], np.int16)
    np.testing.assert_array_equal(build(model).run({"x": x})[0], wanted)


def test_zip_map_gives_its_tensor() -> None:
    """Columns are in the order of the labels, which keys of maps need not be."""
    labels = [4, 0, 3, 1, 2]
    model = model_of("ZipMap", {"classlabels_int64s": labels})
    built, session = build(model), session_of(model)
    for feed in feeds()[1:]:
        maps = session.run(None, feed)[0]
        wanted = np.array([[row[label] for label in labels] for row in maps], np.float32)
        np.testing.assert_array_equal(built.run(feed)[0], wanted)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "one a feature"),
        ("Normalizer", {"norm": "L3"}, "norm"),
        ("Imputer", {"imputed_value_int64s": [1]}, "imputed_value_floats"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "one element a feature"),
        ("FeatureVectorizer", {"inputdimensions": [1, 2]}, "inputdimensions"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "strings"),
        ("OneHotEncoder", {"zeros": 1}, "no categories"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "strings"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_strings": ["a"]}, "strings"),
        ("LabelEncoder", {"keys_floats": [1.0], "values_int64s": [1, 2]}, "keys"),
        ("LabelEncoder", {"keys_floats": [1.0, 1.0], "values_int64s": [1, 2]}, "two values"),
        ("CategoryMapper", {"cats_int64s": [1], "cats_strings": ["a"]}, "maps"),
        ("ZipMap", {"classlabels_int64s": [0, 1]}, "one a column"),
    ],
)
def test_what_is_refused(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        build(model_of(op, attributes))
