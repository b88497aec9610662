"""The models whose libraries are judged: small ones made here, and real ones of packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.models import MODELS, path_of

_HEADER = '<ir_version: 9, opset_import: ["": 17]>'
_CONVOLUTIONS = """(float[n,3,h,w] x) => (float[n,10] y, float[n,24,p,q] features) {
    a = Conv<pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(x, w0, b0)
    r = Relu(a)
    features = Conv<pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(r, w1, b1)
    s = Sigmoid(features)
    m = GlobalAveragePool(s)
    f = Flatten(m)
    y = Gemm(f, w2, b2)
}"""
_ENCODER = """(float[n,s,32] x, bool[n,s] mask) => (float[n,s,32] y) {
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    t = Transpose<perm = [0, 2, 1]>(k)
    scores = MatMul(q, t)
    scaled = Mul(scores, factor)
    one = Constant<value = int64[1] {1}>()
    wide = Unsqueeze(mask, one)
    masked = Where(wide, scaled, low)
    p = Softmax<axis = -1>(masked)
    o = MatMul(p, v)
    h = Add(o, x)
    l = LayerNormalization<axis = -1>(h, gain, bias)
    u = MatMul(l, wu)
    a = Relu(u)
    d = MatMul(a, wd)
    y = Add(d, l)
}"""
_QUANTIZED = """(float[n,64] x) => (float[n,20] y) {
    xq, xs, xz = DynamicQuantizeLinear(x)
    a = MatMulInteger(xq, w0, xz)
    af = Cast<to = 1>(a)
    as = Mul(af, xs)
    al = Mul(as, s0)
    ab = Add(al, b0)
    r = Tanh(ab)
    rq, rs, rz = DynamicQuantizeLinear(r)
    b = MatMulInteger(rq, w1, rz)
    bf = Cast<to = 1>(b)
    bs = Mul(bf, rs)
    bl = Mul(bs, s1)
    y = Add(bl, b1)
}"""


@dataclass(frozen=True)
class Subject:
    """A model and what a request declares about it."""

    model: Callable[[], onnx.ModelProto]
    dims: Mapping[str, str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    consts: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def _with_constants(text: str, constants: Mapping[str, tuple[int, ...] | float]) -> onnx.ModelProto:
    """The model with random constants of those shapes, 8-bit ones where a name is multiplied as
    integers.
    """
    model = onnx.parser.parse_model(f"{_HEADER} g {text}")
    random = np.random.default_rng(0)
    integers = {node.input[1] for node in model.graph.node if node.op_type == "MatMulInteger"}
    for name, shape in constants.items():
        if isinstance(shape, float):
            array = np.array(shape, np.float32)
        elif name in integers:
            array = random.integers(-127, 128, shape).astype(np.int8)
        else:
            fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
            array = (random.standard_normal(shape) / np.sqrt(max(fan, 1))).astype("float32")
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _convolutions() -> onnx.ModelProto:
    shapes = {
        "w0": (16, 3, 3, 3),
        "b0": (16,),
        "w1": (24, 16, 3, 3),
        "b1": (24,),
        "w2": (24, 10),
        "b2": (10,),
    }
    return _with_constants(_CONVOLUTIONS, shapes)


def _encoder() -> onnx.ModelProto:
    square = dict.fromkeys(("wq", "wk", "wv"), (32, 32))
    others = {"wu": (32, 64), "wd": (64, 32), "gain": (32,), "bias": (32,)}
    return _with_constants(_ENCODER, {**square, **others, "factor": 32**-0.5, "low": -1e9})


def _quantized() -> onnx.ModelProto:
    shapes = {"w0": (64, 96), "b0": (96,), "w1": (96, 20), "b1": (20,)}
    return _with_constants(_QUANTIZED, {**shapes, "s0": 0.002, "s1": 0.002})


def _read(name: str) -> onnx.ModelProto:
    return onnx.load(path_of(name))


QUICK = {
    "convolutions": Subject(_convolutions, {"n": "1:4", "h": "8:40", "w": "8:40"}),
    "encoder": Subject(_encoder, {"n": "1:4", "s": "1:64"}),
    "quantized": Subject(_quantized, {"n": "1:64"}),
}
SUBJECTS = {
    **QUICK,
    **{
        name: Subject(partial(_read, name), model.dims, model.inputs, model.consts)
        for name, model in MODELS.items()
        if not name.endswith("_jit")
    },
}
"""By name."""
