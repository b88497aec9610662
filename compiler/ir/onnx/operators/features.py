"""ai.onnx.ml's preparation of features: scaling, filling in, joining and encoding."""

from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.classical import DOMAIN, floats, integers
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import reduce
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.programs import like, pointwise
from compiler.ir.ops.shape import encoding, layout
from compiler.ir.shapes import extents as ex

TEXT = "strings are not supported: a compiled model's values are tensors of numbers"
ENCODE = "encode the categories as integers before the model"


def _per_feature(b: Builder, node: Node, x: Value, name: str, default: float) -> Value:
    """One number for all features, or one each."""
    values = floats(node, name)
    if not len(values):
        return Known.of(np.full((), default), x.dtype)
    if len(values) == 1:
        return Known.of(values.reshape(()), x.dtype)
    b.require(
        ex.equal(x.shape[-1], len(values)), f"{name} has {len(values)} elements, one a feature"
    )
    return Known.of(values, x.dtype)


def _matrix(node: Node) -> Value:
    x = node.value(0)
    if len(x.shape) not in (1, 2):
        node.fail(f"the input has {len(x.shape)} axes, one or two are needed", reason="shape")
    return x


@op("Scaler", domain=DOMAIN)
def scaler(b: Builder, node: Node) -> Value:
    """(x - offset) * scale as float32."""
    x = _matrix(node)
    wide = ew.cast(b, x, "float64" if x.dtype == "float64" else "float32")
    moved = ew.subtract(b, wide, _per_feature(b, node, wide, "offset", 0.0))
    scaled = ew.multiply(b, moved, _per_feature(b, node, wide, "scale", 1.0))
    return ew.cast(b, scaled, "float32")


@op("Normalizer", domain=DOMAIN)
def normalizer(b: Builder, node: Node) -> Value:
    """Each row over its greatest element or its L1 or L2 norm, as float32; a row of norm 0 as it
    is.
    """
    x, norm = ew.cast(b, _matrix(node), "float32"), node.attr("norm", "MAX")
    last = len(x.shape) - 1
    match norm:
        case "MAX":
            size = reduce.reduce(b, x, "max", [last], True)
        case "L1":
            size = reduce.reduce(b, pointwise(b, tirx.abs, x, name="abs"), "sum", [last], True)
        case "L2":
            square = reduce.reduce(b, ew.multiply(b, x, x), "sum", [last], True)
            size = pointwise(b, tirx.sqrt, square, name="norm")
        case _:
            node.fail(f"norm is {norm!r}, which ONNX does not define", reason="attribute")

    def scaled(value: Any, norm_of_row: Any) -> Any:
        none = tirx.EQ(norm_of_row, like(norm_of_row, 0))
        return value / tirx.Select(none, like(norm_of_row, 1), norm_of_row)

    return pointwise(b, scaled, x, size, name="normalize")


@op("Imputer", domain=DOMAIN)
def imputer(b: Builder, node: Node) -> Value:
    """x with one value, which may be NaN, replaced: by one other, or by one a feature."""
    x = _matrix(node)
    real = ew.is_float(x.dtype)
    name = "imputed_value_floats" if real else "imputed_value_int64s"
    if not node.attr(name, []):
        node.fail(f"rows of {x.dtype} need {name}", reason="attribute")
    fills = (floats if real else integers)(node, name)
    many = len(fills) > 1
    if many:
        b.require(ex.equal(x.shape[-1], len(fills)), f"{name} has one element a feature")
    wanted = node.attr("replaced_value_float" if real else "replaced_value_int64", 0)

    def filled(value: Any, new: Any) -> Any:
        if real and np.isnan(wanted):
            return tirx.Select(tirx.isnan(value), new, value)
        return tirx.Select(tirx.EQ(value, like(value, wanted)), new, value)

    fill = Known.of(fills if many else fills.reshape(()), x.dtype)
    return pointwise(b, filled, x, fill, name="impute")


@op("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(b: Builder, node: Node) -> Value:
    """Columns of all inputs side by side as float32: `inputdimensions` of each, zeros where it has
    fewer.
    """
    widths = node.attr("inputdimensions", [])
    if len(widths) != len(node.inputs) or min(widths, default=0) < 0:
        node.fail("inputdimensions has to give the columns of each input", reason="attribute")
    return layout.concat(
        b, [_columns(b, node.value(i), width) for i, width in enumerate(widths)], 1
    )


def _columns(b: Builder, x: Value, width: int) -> Value:
    """[n, width]: the input's rows, cut or filled up with zeros."""
    rows = 1 if len(x.shape) == 1 else x.shape[0]
    extent = b.facts.simplify(ex.prod(x.shape if len(x.shape) == 1 else x.shape[1:]))
    flat = ew.cast(b, layout.reshape(b, x, [rows, extent]), "float32")
    if b.facts.same(extent, width) is True:
        return flat
    return encoding.fit_columns(b, flat, width)


@op("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(b: Builder, node: Node) -> Value:
    """float32 [*x.shape, categories]; unknown values give zeros, or fail if `zeros` is 0."""
    if node.attr("cats_strings", []):
        node.fail(TEXT, reason="dtype", hint=ENCODE)
    categories = integers(node, "cats_int64s")
    if not len(categories):
        node.fail("cats_int64s names no categories", reason="attribute")
    return encoding.one_hot(b, node.value(0), categories, bool(node.attr("zeros", 1)))


@op("LabelEncoder", since=2, domain=DOMAIN)
def label_encoder(b: Builder, node: Node) -> Value:
    """Each element replaced by what it maps to; from opset 4 on NaN is a key like any other."""
    keys, values, kind = _mapping(node, "keys"), _mapping(node, "values"), "default_tensor"
    if len(keys) != len(values) or not len(keys):
        node.fail(f"{len(keys)} keys are given for {len(values)} values", reason="attribute")
    default: Any = -1 if values.dtype.kind == "i" else -0.0
    if kind in node.attributes:
        default = _numbers(node, kind).reshape(-1)[0]
    else:
        name = "default_int64" if values.dtype.kind == "i" else "default_float"
        default = node.attr(name, default)
    numbers = keys == keys if node.opset < 4 else np.ones(len(keys), bool)
    keys, values = keys[numbers], values[numbers]
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(values[first][group], values, equal_nan=values.dtype.kind == "f"):
        node.fail(
            "a key stands for two values: the first counts in ONNX Runtime, the last in the "
            "specification",
            reason="attribute",
            hint="remove one of them",
        )
    return encoding.map_values(b, node.value(0), keys, values, values.dtype.type(default))


@op("LabelEncoder", domain=DOMAIN)
def label_encoder_of_text(b: Builder, node: Node) -> Value:
    """Opset 1 knows maps between strings and integers alone."""
    node.fail(TEXT, reason="dtype", hint=ENCODE)


@op("ZipMap", domain=DOMAIN)
def zip_map(b: Builder, node: Node) -> Value:
    """The probabilities [n, classes] as they are, columns in the order of the class labels: what
    ONNX Runtime gives as a list of maps.
    """
    x = _matrix(node)
    labels = node.attr("classlabels_strings", []) or node.attr("classlabels_int64s", [])
    b.require(ex.equal(x.shape[-1], len(labels)), f"ZipMap has {len(labels)} labels, one a column")
    return layout.unsqueeze(b, x, [0]) if len(x.shape) == 1 else x


def _mapping(node: Node, side: str) -> np.ndarray[Any, Any]:
    """The keys or values, whichever of their attributes is given."""
    if node.attr(f"{side}_strings", []):
        node.fail(TEXT, reason="dtype", hint=ENCODE)
    if f"{side}_tensor" in node.attributes:
        return _numbers(node, f"{side}_tensor").reshape(-1)
    if f"{side}_int64s" in node.attributes:
        return integers(node, f"{side}_int64s")
    return floats(node, f"{side}_floats")


def _numbers(node: Node, name: str) -> np.ndarray[Any, Any]:
    array = np.asarray(numpy_helper.to_array(node.attr(name)))
    if array.dtype.kind not in "if" or not array.size:
        node.fail(TEXT, reason="dtype", hint=ENCODE)
    return array
