"""One model with kernels of every kind: a perceptron, a convolutional net, attention, a recurrent
layer, and the mathematical functions at three precisions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DIMS = {"n": (1, 4), "side": (8, 20), "steps": (1, 9)}

_PLAIN = (
    "Exp",
    "Log",
    "Erf",
    "Tanh",
    "Sigmoid",
    "Sqrt",
    "Softplus",
    "Round",
    "Floor",
    "Sin",
    "Cos",
)
_REST = ("Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")
_TYPES = {"float16": TensorProto.FLOAT16, "float": TensorProto.FLOAT, "double": TensorProto.DOUBLE}
_CHANNELS, _HIDDEN, _WIDTH, _HEADS = 16, 24, 64, 4

_node = helper.make_node


def kernel_kinds() -> onnx.ModelProto:
    """Inputs image[n, 3, side, side], tokens[n, steps, 64], frames[steps, n, 16] and, of each
    precision, numbers[n]; an output of each part.
    """
    parts = (_perceptron(), _net(), _attention(), _recurrent(), *map(_mathematics, _TYPES))
    nodes = [node for part in parts for node in part[0]]
    inputs = [value for part in parts for value in part[1]]
    outputs = [value for part in parts for value in part[2]]
    weights = [weight for part in parts for weight in part[3]]
    graph = helper.make_graph(
        nodes,
        "kernel_kinds",
        [helper.make_tensor_value_info(*item) for item in dict.fromkeys(inputs)],
        [helper.make_tensor_value_info(*item) for item in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights],
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


_Values = list[tuple[str, int, tuple[str | int, ...]]]
_Part = tuple[list[onnx.NodeProto], _Values, _Values, list[tuple[str, Any]]]
_TOKENS = ("tokens", TensorProto.FLOAT, ("n", "steps", _WIDTH))


def _weight(*shape: int) -> Any:
    values = np.random.default_rng(shape).standard_normal(shape)
    return (values / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def _perceptron() -> _Part:
    nodes = [
        _node("MatMul", ["tokens", "up"], ["raised"]),
        _node("Gelu", ["raised"], ["bent"]),
        _node("MatMul", ["bent", "down"], ["fed"]),
    ]
    weights = [("up", _weight(_WIDTH, 48)), ("down", _weight(48, 7))]
    return nodes, [_TOKENS], [("fed", TensorProto.FLOAT, ("n", "steps", 7))], weights


def _net() -> _Part:
    nodes = [
        _node("Conv", ["image", "stem", "bias"], ["c0"], pads=[1, 1, 1, 1]),
        _node("Relu", ["c0"], ["c1"]),
        _node("Conv", ["c1", "depth"], ["c2"], group=_CHANNELS, pads=[1] * 4, strides=[2, 2]),
        _node("HardSwish", ["c2"], ["c3"]),
        _node("Conv", ["c3", "point"], ["c4"]),
        _node("MaxPool", ["c4"], ["c5"], kernel_shape=[3, 3], strides=[2, 2]),
        _node("GlobalAveragePool", ["c5"], ["pooled"]),
    ]
    weights = [
        ("stem", _weight(_CHANNELS, 3, 3, 3)),
        ("bias", _weight(_CHANNELS)),
        ("depth", _weight(_CHANNELS, 1, 3, 3)),
        ("point", _weight(_HIDDEN, _CHANNELS, 1, 1)),
    ]
    image = ("image", TensorProto.FLOAT, ("n", 3, "side", "side"))
    return nodes, [image], [("pooled", TensorProto.FLOAT, ("n", _HIDDEN, 1, 1))], weights


def _attention() -> _Part:
    turns = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
    nodes = []
    for name, turn in turns.items():
        nodes += [
            _node("MatMul", ["tokens", f"{name}_weight"], [f"{name}_flat"]),
            _node("Reshape", [f"{name}_flat", "heads"], [f"{name}_heads"]),
            _node("Transpose", [f"{name}_heads"], [name], perm=turn),
        ]
    nodes += [
        _node("MatMul", ["query", "key"], ["scores"]),
        _node("Mul", ["scores", "scale"], ["scaled"]),
        _node("Softmax", ["scaled"], ["shares"], axis=-1),
        _node("MatMul", ["shares", "value"], ["mixed"]),
        _node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        _node("Reshape", ["turned", "joined"], ["context"]),
        _node("Add", ["context", "tokens"], ["sum"]),
        _node("LayerNormalization", ["sum", "gain"], ["attended"], axis=-1),
    ]
    weights = [(f"{name}_weight", _weight(_WIDTH, _WIDTH)) for name in turns]
    weights += [
        ("heads", np.array([0, 0, _HEADS, _WIDTH // _HEADS])),
        ("joined", np.array([0, 0, _WIDTH])),
        ("scale", np.array(0.25, np.float32)),
        ("gain", _weight(_WIDTH)),
    ]
    return nodes, [_TOKENS], [("attended", TensorProto.FLOAT, ("n", "steps", _WIDTH))], weights


def _recurrent() -> _Part:
    weights = [
        ("gates", _weight(1, 4 * _HIDDEN, 16)),
        ("recurrence", _weight(1, 4 * _HIDDEN, _HIDDEN)),
    ]
    inputs = ["frames", "gates", "recurrence"]
    node = _node("LSTM", inputs, ["states"], hidden_size=_HIDDEN)
    frames = ("frames", TensorProto.FLOAT, ("steps", "n", 16))
    return [node], [frames], [("states", TensorProto.FLOAT, ("steps", 1, "n", _HIDDEN))], weights


def _mathematics(precision: str) -> _Part:
    operators: Sequence[str] = _PLAIN if precision == "float16" else (*_PLAIN, *_REST)
    if precision == "double":
        # ONNX Runtime, which the outputs are compared with, has no others of them in double.
        operators = ("Exp", "Log", "Erf", "Tanh", "Sigmoid", "Sqrt", "Floor", "Sin", "Cos")
    numbers, kind = f"{precision}_numbers", _TYPES[precision]
    names = {operator: f"{precision}_{operator.lower()}" for operator in operators}
    nodes = [_node(operator, [numbers], [name]) for operator, name in names.items()]
    if precision == "float":
        names |= {"Pow": "float_pow", "Mod": "float_mod"}
        nodes += [
            _node("Pow", [names["Exp"], numbers], ["float_pow"]),
            _node("Mod", [numbers, names["Exp"]], ["float_mod"], fmod=1),
        ]
    outputs: _Values = [(name, kind, ("n",)) for name in names.values()]
    return nodes, [(numbers, kind, ("n",))], outputs, []
