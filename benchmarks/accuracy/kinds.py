"""Kernel kinds: ONNX graphs of one operator or a few, whose errors are those of one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.accuracy.subject import Feed, Subject

_HEADER = '<ir_version: 9, opset_import: ["": 20]>'
Constant = tuple[int, ...] | np.ndarray
_SCALES = (("noise", 1.0), ("quiet", 0.1), ("loud", 3.0))


@dataclass(frozen=True)
class Kind:
    """A graph: `text` in ONNX's syntax without its name; constants by name, drawn so that sums keep
    the size of their terms, or the array itself.

    sizes: of named axes; positive: whether the operators want numbers above zero.
    """

    group: str
    name: str
    text: str
    sizes: Mapping[str, int]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    positive: bool = False

    def model(self) -> onnx.ModelProto:
        """The graph with its constants."""
        model = onnx.parser.parse_model(f"{_HEADER} kind {self.text}")
        random = np.random.default_rng(0)
        for name, value in self.constants.items():
            array = value if isinstance(value, np.ndarray) else _weights(value, random)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        return model

    def subject(self) -> Subject:
        """The kind as what is measured."""
        return Subject(
            self.group,
            self.name,
            self.model,
            {name: f"1:{max(2 * size, 8)}" for name, size in self.sizes.items()},
            {},
            self._feeds,
        )

    def _feeds(self) -> Iterator[tuple[str, Feed]]:
        """Noise of several scales, and numbers above zero, as behind a rectifier."""
        inputs = self.model().graph.input
        shapes = {
            value.name: [
                self.sizes[axis.dim_param] if axis.dim_param else axis.dim_value
                for axis in value.type.tensor_type.shape.dim
            ]
            for value in inputs
        }
        for number, (family, scale) in enumerate((*_SCALES, ("rectified", 1.0))):
            random = np.random.default_rng(number)
            feed = {name: scale * random.standard_normal(size) for name, size in shapes.items()}
            if self.positive or family == "rectified":
                feed = {name: np.abs(array) for name, array in feed.items()}
            yield family, {name: array.astype(np.float32) for name, array in feed.items()}


def _weights(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    fan = prod(shape[1:]) if len(shape) > 2 else shape[0]
    return (random.standard_normal(shape) * fan**-0.5).astype(np.float32)


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield from _matmuls()
    yield from _convolutions()
    yield from _sequences()
    yield from _reductions()
    yield from _images()
    yield from _functions()


def _matmuls() -> Iterator[Kind]:
    for rows, depth in ((100, 64), (100, 384), (100, 768), (100, 3072), (1, 768), (7, 3072)):
        text = f"(float[m,{depth}] x) => (float[m,192] y) {{ y = MatMul(x, w) }}"
        yield Kind("matmul", f"{rows}x{depth}x192", text, {"m": rows}, {"w": (depth, 192)})
    text = "(float[m,768] x) => (float[m,30] y) { y = MatMul(x, w) }"
    yield Kind("matmul", "100x768x30", text, {"m": 100}, {"w": (768, 30)})
    text = "(float[b,m,k] x, float[b,k,n] w) => (float[b,m,n] y) { y = MatMul(x, w) }"
    for depth in (64, 512, 2048):
        sizes = {"b": 2, "m": 50, "k": depth, "n": 70}
        yield Kind("matmul_dynamic", f"2x50x{depth}x70", text, sizes)
    text = "(float[m,k] x, float[k,1] w) => (float[m,1] y) { y = MatMul(x, w) }"
    yield Kind("matmul_dynamic", "50x2048x1", text, {"m": 50, "k": 2048})
    text = "(float[b,512] x) => (float[b,1] y) { y = Gemm(x, w, c) }"
    yield Kind("matmul", "64x512x1", text, {"b": 64}, {"w": (512, 1), "c": (1,)})


def _convolutions() -> Iterator[Kind]:
    """(group, channels, out, window, stride, groups, size)."""
    for group, channels, out, kernel, stride, groups, size in (
        ("convolution", 3, 64, 7, 2, 1, 96),
        ("convolution", 256, 64, 1, 1, 1, 28),
        ("convolution", 1024, 256, 1, 1, 1, 14),
        ("convolution", 128, 128, 3, 2, 1, 28),
        ("convolution", 512, 128, 3, 1, 1, 7),
        ("convolution", 256, 16, 3, 2, 1, 14),
        ("winograd", 32, 32, 3, 1, 1, 32),
        ("winograd", 64, 64, 3, 1, 1, 28),
        ("winograd", 256, 64, 3, 1, 1, 28),
        ("grouped_conv", 128, 128, 3, 1, 4, 28),
        ("grouped_conv", 256, 256, 3, 1, 2, 14),
        ("single_conv", 64, 1, 3, 1, 1, 56),
        ("single_conv", 256, 1, 5, 1, 1, 28),
        ("depthwise", 96, 96, 3, 1, 96, 28),
        ("depthwise", 96, 96, 7, 1, 96, 28),
    ):
        pads = ", ".join([str(kernel // 2)] * 4)
        text = f"""(float[n,{channels},h,w] x) => (float[n,{out},p,q] y) {{
            y = Conv<kernel_shape = [{kernel}, {kernel}], pads = [{pads}], group = {groups},
                strides = [{stride}, {stride}]>(x, k, b) }}"""
        name = f"{channels}->{out} {kernel}x{kernel}/{stride} at {size}" + (
            f", {groups} groups" if 1 < groups < channels else ""
        )
        constants = {"k": (out, channels // groups, kernel, kernel), "b": (out,)}
        yield Kind(group, name, text, {"n": 1, "h": size, "w": size}, constants)
    text = """(float[n,128,l] x) => (float[n,128,m] y) {
        y = Conv<kernel_shape = [31], pads = [15, 15], group = 128>(x, k) }"""
    yield Kind("depthwise", "128, 31 of 200", text, {"n": 1, "l": 200}, {"k": (128, 1, 31)})
    text = """(float[n,64,d,h,w] x) => (float[n,64,e,p,q] y) {
        y = Conv<kernel_shape = [3, 3, 3], pads = [1, 1, 1, 1, 1, 1]>(x, k) }"""
    sizes = {"n": 1, "d": 4, "h": 10, "w": 10}
    yield Kind("grouped_conv", "64->64 3x3x3 at 4x10", text, sizes, {"k": (64, 64, 3, 3, 3)})
    text = """(float[n,128,h,w] x) => (float[n,64,p,q] y) {
        y = ConvTranspose<kernel_shape = [4, 4], strides = [2, 2], pads = [1, 1, 1, 1]>(x, k) }"""
    sizes = {"n": 1, "h": 14, "w": 14}
    yield Kind("convolution", "transposed 128->64 4x4/2", text, sizes, {"k": (128, 64, 4, 4)})


def _sequences() -> Iterator[Kind]:
    text = """(float[b,8,m,64] q, float[b,8,n,64] k, float[b,8,n,64] v) => (float[b,8,m,64] y) {
        t = Transpose<perm = [0, 1, 3, 2]>(k)
        s = MatMul(q, t)
        c = Constant<value_float = 0.125>()
        d = Mul(s, c)
        p = Softmax<axis = -1>(d)
        y = MatMul(p, v) }"""
    for rows, keys in ((100, 128), (100, 1000), (1, 1000)):
        yield Kind("attention", f"{rows} rows, {keys} keys", text, {"b": 1, "m": rows, "n": keys})
    for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        text = f"""(float[s,b,64] x) => (float[s,1,b,256] y) {{
            y = {name}<hidden_size = 256>(x, w, r, bias) }}"""
        random = np.random.default_rng(1)
        constants = {
            "w": (random.standard_normal((1, gates * 256, 64)) / 8).astype("float32"),
            "r": (random.standard_normal((1, gates * 256, 256)) / 16).astype("float32"),
            "bias": (random.standard_normal((1, 2 * gates * 256)) / 8).astype("float32"),
        }
        yield Kind("recurrent", f"{name} of 256, 40 steps", text, {"s": 40, "b": 2}, constants)


def _rows(name: str, node: str, size: int, **constants: Constant) -> Kind:
    text = f"(float[m,{size}] x) => (float[m,c] y) {{ {node} }}"
    return Kind("rows", name, text, {"m": 64}, constants)


def _reductions() -> Iterator[Kind]:
    for size in (64, 1000, 8192):
        yield _rows(f"softmax of {size}", "y = Softmax<axis = -1>(x)", size)
    yield _rows("log-softmax of 1000", "y = LogSoftmax<axis = -1>(x)", 1000)
    for size in (64, 768):
        node = "y = LayerNormalization<axis = -1>(x, scale, shift)"
        yield _rows(f"layer norm of {size}", node, size, scale=(size,), shift=(size,))
    yield _rows("L2 norm of 768", "y = LpNormalization<axis = -1, p = 2>(x)", 768)
    for name in ("Sum", "Mean", "SumSquare", "L1", "L2", "LogSumExp", "LogSum"):
        for size in (768, 20000):
            node = f"a = Constant<value_ints = [-1]>() y = Reduce{name}(x, a)"
            kind = _rows(f"{name} of {size}", node, size)
            yield Kind("reduction", kind.name, kind.text, kind.sizes, positive=name == "LogSum")
    text = """(float[m,32] x) => (float[a,32] y) {
        a = Constant<value_ints = [0]>() y = ReduceMean(x, a) }"""
    yield Kind("reduction", "Mean of the first of 5000 axes", text, {"m": 5000})
    text = """(float[m,200] x) => (float[m,200] y) {
        a = Constant<value_int = 1>() y = CumSum(x, a) }"""
    yield Kind("reduction", "CumSum of 200", text, {"m": 64})


def _images() -> Iterator[Kind]:
    def kind(name: str, node: str, channels: int, size: int, **constants: tuple[int, ...]) -> Kind:
        text = f"(float[n,{channels},h,w] x) => (float[n,c,p,q] y) {{ {node} }}"
        return Kind("images", name, text, {"n": 1, "h": size, "w": size}, constants)

    yield kind("global average of 56x56", "y = GlobalAveragePool(x)", 64, 56)
    yield kind("average 3x3", "y = AveragePool<kernel_shape = [3, 3]>(x)", 32, 28)
    yield kind("average 16x16", "y = AveragePool<kernel_shape = [16, 16]>(x)", 16, 32)
    node = "y = InstanceNormalization(x, scale, shift)"
    yield kind("instance norm at 56", node, 32, 56, scale=(32,), shift=(32,))
    node = "y = BatchNormalization(x, scale, shift, shift, variance)"
    variance = np.full(32, 0.7, np.float32)
    constants: dict[str, Constant] = {"scale": (32,), "shift": (32,), "variance": variance}
    text = f"(float[n,32,h,w] x) => (float[n,32,h,w] y) {{ {node} }}"
    yield Kind("images", "batch norm", text, {"n": 1, "h": 28, "w": 28}, constants)
    yield kind("local response norm", "y = LRN<size = 5>(x)", 32, 28)
    for mode in ("linear", "cubic"):
        node = f"""s = Constant<value_floats = [1.0, 1.0, 2.3, 1.7]>()
            y = Resize<mode = "{mode}">(x, , s)"""
        yield kind(f"resize {mode}", node, 16, 28)


FUNCTIONS = (
    *("Exp", "Erf", "Tanh", "Sigmoid", "Softplus", "Softsign", "Mish", "HardSwish", "Elu"),
    *("Selu", "Celu", "Gelu", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Reciprocal"),
)
POSITIVE = ("Log", "Sqrt")


def _functions() -> Iterator[Kind]:
    for name in (*FUNCTIONS, *POSITIVE):
        text = f"(float[m,64] x) => (float[m,64] y) {{ y = {name}(x) }}"
        yield Kind("functions", name, text, {"m": 100}, positive=name in POSITIVE)
    text = '(float[m,64] x) => (float[m,64] y) { y = Gelu<approximate = "tanh">(x) }'
    yield Kind("functions", "Gelu by tanh", text, {"m": 100})
    text = "(float[m,64] x) => (float[m,64] y) { s = Sigmoid(x) y = Mul(x, s) }"
    yield Kind("functions", "SiLU", text, {"m": 100})
    text = """(float[m,64] x) => (float[m,64] y) {
        e = Constant<value_float = 1.7>() y = Pow(x, e) }"""
    yield Kind("functions", "Pow 1.7", text, {"m": 100}, positive=True)
