"""DynamicQuantizeLSTM beside ONNX Runtime on one thread: weights of both signs, by one scale or one
for each column, rows that end, states and batches that fill tiles of rows and not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

from compiler.ir import import_model
from compiler.passes.pack.recurrences import PackRecurrences, pack_blocks
from compiler.recurrences.layer import LANES, Integers
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import Arrays, Built, build, normal, session_of
from tests.compiler.passes import lowered
from tests.support.geometries import GEOMETRIES, geometry, host

SHAPES = ((1, 1), (5, 2), (3, 7), (4, 0), (2, 25))
INPUTS = 5


def model(
    hidden: int,
    columns: bool = False,
    signed: bool = True,
    rows: str = "",
    outputs: Sequence[str] = ("y", "h", "c"),
    **attributes: Any,
) -> onnx.ModelProto:
    """Over x [s, n, 5]; rows: which of `lengths`, `states` and `peepholes` there are."""
    draw = np.random.default_rng(hidden)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    dtype, low = (np.int8, -127) if signed else (np.uint8, 0)
    grid, gates = (directions, 4 * hidden) if columns else (directions,), 4 * hidden
    zero = np.full(grid, 0 if signed else 131, dtype)
    scale = 1.0 / (100 * np.sqrt(hidden))
    constants = {
        "w": draw.integers(low, low + 254, (directions, INPUTS, gates)).astype(dtype),
        "r": draw.integers(low, low + 254, (directions, hidden, gates)).astype(dtype),
        "b": normal(directions, 2 * gates) / 2,
        "ws": draw.uniform(0.002, 0.005, grid).astype(np.float32),
        "wz": zero,
        "rs": draw.uniform(scale / 2, scale, grid).astype(np.float32),
        "rz": zero,
    }
    inputs = {"x": f"float32[s,n,{INPUTS}]"}
    names = ["x", "w", "r", "b", "-", "-", "-", "-", "ws", "wz", "rs", "rz"]
    if "lengths" in rows:
        inputs["lengths"], names[4] = "int32[n]", "lengths"
    if "states" in rows:
        inputs |= dict.fromkeys(("h0", "c0"), f"float32[{directions},n,{hidden}]")
        names[5:7] = "h0", "c0"
    if "peepholes" in rows:
        constants["p"], names[7] = normal(directions, 3 * hidden) / 2, "p"
    attributes["hidden_size"] = hidden
    order = " ".join(names)
    return one_node("DynamicQuantizeLSTM", inputs, constants, order, outputs=outputs, **attributes)


def feed(proto: onnx.ModelProto, steps: int, batch: int) -> Arrays:
    arrays = {"x": normal(steps, batch, INPUTS) * 3}
    for info in proto.graph.input[1:]:
        axes = [axis.dim_value or batch for axis in info.type.tensor_type.shape.dim]
        # The longest row has fewer steps than there are.
        lengths = np.arange(batch) % max(steps - 1, 1) + 1
        arrays[info.name] = lengths.astype(np.int32) if info.name == "lengths" else normal(*axes)
    return arrays


def assert_like_onnxruntime(proto: onnx.ModelProto, built: Built) -> None:
    """All but few numbers agree to what float32 loses; a sum whose last bits differ may round to
    the other neighbour.
    """
    session = session_of(proto)
    for shape in SHAPES:
        arrays = feed(proto, *shape)
        results = built.run(arrays)
        if not shape[1]:
            # ONNX Runtime 1.31 ends the process.
            assert all(not result.size for result in results)
            continue
        for mine, theirs in zip(results, session.run(None, dict(arrays)), strict=True):
            assert mine.shape == theirs.shape
            apart = np.abs(mine - theirs)
            assert np.mean(apart > 1e-5) <= 0.02
            assert apart.max() < 0.02


CASES: dict[str, dict[str, Any]] = {
    "one scale": {"hidden": 16},
    "a scale for each column": {"hidden": 24, "columns": True},
    "unsigned": {"hidden": 9, "signed": False},
    "unsigned columns": {"hidden": 20, "signed": False, "columns": True},
    "both directions": {"hidden": 35, "direction": "bidirectional", "rows": "states peepholes"},
    "rows that end": {
        "hidden": 12,
        "direction": "bidirectional",
        "rows": "lengths states",
        "signed": False,
    },
    "rows that end, last states alone": {
        "hidden": 17,
        "direction": "reverse",
        "rows": "lengths",
        "outputs": ("", "h", "c"),
    },
    "activations": {
        "hidden": 8,
        "clip": 0.5,
        "activations": ["HardSigmoid", "Relu", "Softsign"],
    },
    "weights that leave the cache": {"hidden": 130, "columns": True},
}


@pytest.mark.parametrize("case", CASES)
def test_programs_of_the_import(case: str) -> None:
    proto = model(**CASES[case])
    assert_like_onnxruntime(proto, build(proto))


@pytest.mark.parametrize("case", CASES)
def test_programs_for_this_processor(case: str) -> None:
    proto = model(**CASES[case])
    assert_like_onnxruntime(proto, lowered.build(proto, {"s": (1, None), "n": (0, None)}))


@pytest.mark.parametrize("unit", GEOMETRIES)
@pytest.mark.parametrize("case", ["unsigned columns", "both directions"])
def test_programs_for_other_processors(case: str, unit: str) -> None:
    proto = model(**CASES[case])
    dims = {"s": (1, None), "n": (0, None)}
    assert_like_onnxruntime(proto, lowered.build(proto, dims, geometry(unit)))


def test_weights_stay_bytes() -> None:
    """No constant of the layer but biases and scales has more than a byte for each number."""
    imported = import_model(model(40, columns=True), CompileRequest.of())
    module = relax.transform.FoldConstant()(imported.module)
    unit = VectorUnit.of(host())
    packed = PackRecurrences(unit).apply(module)
    large = [constant for constant in constants_of(packed) if constant.size >= 40 * 160]
    assert large
    assert all(constant.dtype == np.int8 for constant in large)


def constants_of(module: tvm.IRModule) -> list[Any]:
    constants: list[Any] = []
    relax.analysis.post_order_visit(
        module["main"],
        lambda node: (
            constants.append(node.value.numpy()) if isinstance(node, tvm.ir.GenericConst) else None
        ),
    )
    return constants


def test_packed_weights() -> None:
    """Three blocks of three units in panels of two, in groups of two units."""
    weights = np.arange(3 * 4 * 3 * LANES).reshape(3, 4, 3, LANES).astype(np.int8)
    dot = next(dot for dot in (VectorUnit.of(host()).integer_dots) if dot.intrinsic)
    integers = Integers(False, False, dot, 2 * LANES)
    group, panel = integers.group, integers.panel
    packed = pack_blocks(weights, integers).reshape(2, -(-3 // group), 4, panel * LANES, group)
    for block, gate, unit, lane in np.ndindex(*weights.shape):
        column = block % panel * LANES + lane
        value = packed[block // panel, unit // group, gate, column, unit % group]
        assert value == weights[block, gate, unit, lane]
    assert np.abs(packed).sum() == np.abs(weights).sum()
