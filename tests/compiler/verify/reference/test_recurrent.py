"""The stand-in's recurrent operators beside ONNX Runtime's, and by their own equations."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.verify.reference.float64 import Float64
from compiler.verify.reference.onnx import ENGINES, ONNX, SPECIFICATION, engines_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, WIDTH, HIDDEN = 7, 3, 4, 5
ACTIVATIONS = {
    "defaults": (),
    "without numbers": ("Softsign", "Relu", "Softplus"),
    "with numbers": ("HardSigmoid", "ScaledTanh", "Affine"),
    "usual numbers": ("HardSigmoid", "LeakyRelu", "Elu"),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"clip": 0.6},
    {"input_forget": 1},
    {"linear_before_reset": 1},
)
CASES = [
    (kind, direction, activations, options)
    for kind, direction, activations, options in product(
        GATES, ("forward", "reverse", "bidirectional"), ACTIVATIONS, OPTIONS
    )
    if ("input_forget" not in options or kind == "LSTM")
    and ("linear_before_reset" not in options or kind == "GRU")
]


def recurrent(kind: str, full: bool = True, **attributes: Any) -> onnx.ModelProto:
    """A layer with lengths, states and peepholes, or the required inputs alone."""
    random, gates = np.random.default_rng(0), GATES[kind]
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    constants = {
        "w": 0.3 * random.standard_normal((directions, gates * HIDDEN, WIDTH)),
        "r": 0.2 * random.standard_normal((directions, gates * HIDDEN, HIDDEN)),
        "bias": 0.3 * random.standard_normal((directions, 2 * gates * HIDDEN)),
    }
    names = ["x", "w", "r", "bias"]
    if full:
        states = (directions, BATCH, HIDDEN)
        shape = states if not attributes.get("layout") else (BATCH, directions, HIDDEN)
        names += ["lengths", "h"]
        constants["h"] = random.standard_normal(states).reshape(shape)
        if kind == "LSTM":
            names += ["c", "peepholes"]
            constants["c"] = random.standard_normal(states).reshape(shape)
            constants["peepholes"] = 0.2 * random.standard_normal((directions, 3 * HIDDEN))
    outputs = ["y", "yh", *(["yc"] if kind == "LSTM" else [])]
    graph = helper.make_graph(
        [helper.make_node(kind, names, outputs, hidden_size=HIDDEN, **attributes)],
        "recurrent",
        [
            helper.make_tensor_value_info("x", 1, [None, None, WIDTH]),
            helper.make_tensor_value_info("lengths", onnx.TensorProto.INT32, [None]),
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)


def attributes_of(kind: str, activations: str, directions: int) -> dict[str, Any]:
    """The attributes of those activations."""
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]
    names = ACTIVATIONS[activations][:count]
    if not names:
        return {}
    result: dict[str, Any] = {"activations": names * directions}
    if activations == "with numbers":
        result["activation_alpha"] = [0.3, 0.7, 0.9][:count] * directions
        result["activation_beta"] = [0.4, 1.2, 0.1][:count] * directions
    return result


def run(engine: str, model: onnx.ModelProto, folder: Path, **feeds: Any) -> dict[str, Any]:
    onnx.save(model, folder / "model.onnx")
    return dict(ENGINES[engine](str(folder / "model.onnx")).run(feeds, {}))


X = np.random.default_rng(1).standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)
LENGTHS = np.array([7, 3, 1], np.int32)


@pytest.mark.parametrize(("kind", "direction", "activations", "options"), CASES)
def test_attributes_do_what_onnxruntime_makes_of_them(
    kind: str, direction: str, activations: str, options: dict[str, Any], tmp_path: Path
) -> None:
    directions = 2 if direction == "bidirectional" else 1
    attributes = {"direction": direction, **attributes_of(kind, activations, directions), **options}
    model = recurrent(kind, **attributes)
    want = run("onnxruntime", model, tmp_path, x=X, lengths=LENGTHS)
    got = run("onnx.reference", model, tmp_path, x=X, lengths=LENGTHS)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=2e-5 * np.abs(value).max())


@pytest.mark.parametrize("kind", GATES)
def test_batches_may_come_first(kind: str, tmp_path: Path) -> None:
    """ONNX Runtime refuses the form."""
    plain = run("onnx.reference", recurrent(kind, False), tmp_path, x=X, lengths=LENGTHS)
    swapped = run(
        "onnx.reference",
        recurrent(kind, False, layout=1),
        tmp_path,
        x=X.swapaxes(0, 1),
        lengths=LENGTHS,
    )
    np.testing.assert_array_equal(swapped["y"], plain["y"].transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(swapped["yh"], plain["yh"].swapaxes(0, 1))


@pytest.mark.parametrize("scales", [(2,), (2, 4 * HIDDEN)])
@pytest.mark.parametrize("outputs", [["y", "last"], ["", "last"]])
def test_inputs_and_states_are_quantized_by_their_range(
    scales: tuple[int, ...], outputs: list[str], tmp_path: Path
) -> None:
    """ONNX Runtime on one thread gives the same, in float32; no row has all steps."""
    random = np.random.default_rng(2)
    stored: dict[str, Any] = {"lengths": LENGTHS - 1 + (LENGTHS == 1)}
    for name, rows in (("w", WIDTH), ("r", HIDDEN)):
        stored[name] = random.integers(0, 256, (2, rows, 4 * HIDDEN)).astype(np.uint8)
        stored[f"{name}s"] = random.uniform(0.002, 0.004, scales).astype(np.float32)
        stored[f"{name}z"] = np.full(scales, 131, np.uint8)
    order = ["x", "w", "r", "", "lengths", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        order,
        outputs,
        domain="com.microsoft",
        hidden_size=HIDDEN,
        direction="bidirectional",
    )
    model = one_node_model(node, stored)
    assert engines_of(model)[0] == "onnxruntime.quantized.ordered"
    want = run(engines_of(model)[0], model, tmp_path, x=X)
    evaluator = Float64(str(tmp_path / "model.onnx"))
    values = evaluator.run({"x": X}, {})
    assert evaluator.float32 == set()
    for name, value in want.items():
        assert values[name].dtype == np.float64
        np.testing.assert_allclose(values[name], value, atol=2e-6)


def one_node_model(node: onnx.NodeProto, constants: dict[str, Any]) -> onnx.ModelProto:
    """A model of the node over x, whose outputs are those of the node."""
    graph = helper.make_graph(
        [node],
        "node",
        [helper.make_tensor_value_info("x", 1, [None, None, WIDTH])],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("options", OPTIONS[:3])
def test_attributes_are_exact_too(options: dict[str, Any], tmp_path: Path) -> None:
    model = recurrent("LSTM", **options)
    onnx.save(model, tmp_path / "model.onnx")
    want = run("onnxruntime", model, tmp_path, x=X, lengths=LENGTHS)["y"]
    got = Float64(str(tmp_path / "model.onnx")).run({"x": X, "lengths": LENGTHS}, {})["y"]
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_a_row_of_no_steps_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no steps"):
        run("onnx.reference", recurrent("GRU"), tmp_path, x=X, lengths=LENGTHS - 1)


@pytest.mark.parametrize("kind", GATES)
def test_onnxruntime_does_not_judge_activations_whose_defaults_it_lacks(kind: str) -> None:
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]
    names = ["ThresholdedRelu"] * count
    assert engines_of(recurrent(kind, activations=names)) == SPECIFICATION
    explicit = recurrent(kind, activations=names, activation_alpha=[0.5] * count)
    assert engines_of(explicit) == ONNX
    assert engines_of(recurrent(kind, activations=["Elu"] * count)) == ONNX
