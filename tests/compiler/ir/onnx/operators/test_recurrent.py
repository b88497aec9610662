"""LSTM, GRU and RNN: directions, lengths of sequences, states and peepholes, at batches that fill
tiles of rows and not.
"""

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from compiler import targets
from compiler.codegen.generate import generate
from compiler.errors import ImportFailed
from compiler.passes.manager import lower
from tests.compiler.ir.onnx.running import (
    Arrays,
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)
from tests.compiler.passes import lowered
from tests.support.geometries import GEOMETRIES, geometry

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SHAPES = ((1, 1), (5, 2), (3, 7), (2, 25), (7, 9))
INPUTS = 3


def model(
    kind: str, hidden: int, states: bool = False, peepholes: bool = False, **attributes: Any
) -> onnx.ModelProto:
    """Over x [s, b, 3], with weights, biases and what else is asked for as constants; lengths and
    states are inputs.
    """
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[kind] * hidden
    constants = {
        "w": normal(directions, gates, INPUTS) / 2,
        "r": normal(directions, gates, hidden) / np.sqrt(np.float32(hidden)),
        "bias": normal(directions, 2 * gates) / 2,
        "p": normal(directions, 3 * hidden),
    }
    inputs = {"x": f"float32[s,b,{INPUTS}]"}
    names = ["x", "w", "r", "bias", "", "", "", ""]
    if states:
        inputs |= {"lengths": "int32[b]", "h": f"float32[{directions},b,{hidden}]"}
        names[4:6] = ["lengths", "h"]
    if states and kind == "LSTM":
        inputs["c"] = inputs["h"]
        names[6] = "c"
    if peepholes:
        names[7] = "p"
    outputs = ["every", "last", "memory"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(
        kind, names if kind == "LSTM" else names[:6], outputs, hidden_size=hidden, **attributes
    )
    return model_of(
        [node],
        inputs,
        {name: array.astype(np.float32) for name, array in constants.items()},
        outputs=outputs,
    )


def feed(proto: onnx.ModelProto, steps: int, batch: int) -> Arrays:
    arrays = {"x": normal(steps, batch, INPUTS)}
    for info in proto.graph.input[1:]:
        axes = [axis.dim_value or batch for axis in info.type.tensor_type.shape.dim]
        lengths = np.arange(batch) % steps + 1
        arrays[info.name] = lengths.astype(np.int32) if info.name == "lengths" else normal(*axes)
    return arrays


@pytest.mark.parametrize(
    ("kind", "hidden", "options"),
    [
        ("LSTM", 16, {}),
        ("LSTM", 5, {"direction": "bidirectional", "states": True, "peepholes": True}),
        (
            "LSTM",
            8,
            {
                "direction": "reverse",
                "clip": 0.5,
                "activations": ["HardSigmoid", "Relu", "Softsign"],
            },
        ),
        ("GRU", 16, {"linear_before_reset": 1, "direction": "bidirectional", "states": True}),
        ("GRU", 9, {"direction": "reverse", "states": True}),
        ("RNN", 17, {"direction": "bidirectional", "states": True}),
        # Groups of blocks, and fewer blocks that are left.
        ("LSTM", 35, {"states": True, "peepholes": True}),
        ("GRU", 56, {"linear_before_reset": 1, "states": True}),
        ("GRU", 41, {"states": True}),
        ("RNN", 75, {"states": True}),
    ],
)
def test_layers(kind: str, hidden: int, options: dict[str, Any]) -> None:
    proto = model(kind, hidden, **options)
    assert_like_onnxruntime(
        proto, [feed(proto, *shape) for shape in SHAPES], {"s": (1, None), "b": (1, None)}
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"input_forget": 1, "activations": ["Elu", "ScaledTanh", "Softsign"]}),
        ("GRU", {"linear_before_reset": 1, "activations": ["Sigmoid", "LeakyRelu"]}),
        ("GRU", {"activations": ["HardSigmoid", "Softplus"]}),
        ("RNN", {}),
    ],
    ids=["lstm", "gru-linear", "gru", "rnn"],
)
def test_the_whole_pipeline_gives_the_same(kind: str, options: dict[str, Any]) -> None:
    proto = model(kind, 8, **options)
    host, plain = targets.resolve("native"), build(proto)
    machine = relax.VirtualMachine(
        generate(lower(plain.imported.module, host, plain.imported.ranges), host), tvm.cpu()
    )
    arrays = feed(proto, 4, 5)
    results = machine["main"](tvm.runtime.tensor(arrays["x"]))
    assert_close(
        [array.numpy() for array in results],
        plain.run(arrays),
        [output.name for output in proto.graph.output],
    )


UNITS = {"LSTM": 130, "GRU": 150, "RNN": 260}
"""Whose weights do not stay in the cache, with blocks that fill no group."""


@pytest.mark.parametrize("unit", [*GEOMETRIES, "native"])
@pytest.mark.parametrize("kind", GATES)
def test_directions_that_threads_share_out(kind: str, unit: str) -> None:
    """One row each and many, with enough work for the other threads, and with weights that
    are read there and back.
    """
    proto = model(kind, UNITS[kind], direction="bidirectional", states=True)
    feeds = [feed(proto, *shape) for shape in ((40, 1), (9, 13), (3, 65))]
    dims = {"s": (1, 64), "b": (1, 128)}
    lowered.assert_like_onnxruntime(proto, feeds, dims, geometry(unit))


def test_weights_of_open_extents() -> None:
    inputs = {
        "x": "float32[s,b,i]",
        "w": "float32[1,g,i]",
        "r": "float32[1,g,h]",
        "bias": "float32[1,k]",
    }
    node = helper.make_node("GRU", ["x", "w", "r", "bias"], ["", "last"], hidden_size=5)
    arrays = {
        "x": normal(4, 3, 2),
        "w": normal(1, 15, 2),
        "r": normal(1, 15, 5),
        "bias": normal(1, 30),
    }
    assert_like_onnxruntime(model_of([node], inputs), [arrays], dict.fromkeys("sbighk", (1, None)))


def test_an_input_without_a_batch_is_refused() -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4)
    with pytest.raises(ImportFailed) as caught:
        build(
            model_of([node], {"x": "float32[s,3]", "w": "float32[1,16,3]", "r": "float32[1,16,4]"})
        )
    assert caught.value.code == "import.shape"
