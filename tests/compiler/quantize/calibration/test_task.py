"""Which weights of a model are calibrated, by what, and in which order."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.errors import ImportFailed
from compiler.ir.onnx.model.nodes import Graph
from compiler.ir.onnx.model.weights import quantize_weights
from compiler.ir.weights import WeightQuantization, digest_of
from compiler.quantize.calibration.gptq import calibrate_table, moments_of
from compiler.quantize.calibration.run import Calibrator
from compiler.quantize.calibration.sites import ELSEWHERE, READ, TWICE, sites_of, with_initializers
from compiler.quantize.calibration.task import UNSEEN
from compiler.verify.reference.onnx import save_model
from compiler.verify.sides import Reference
from relaxd.contract.options import WeightForm
from tests.compiler.ir.onnx.running import model_of, normal, session_of
from tests.compiler.quantize.calibration.test_gptq import rows_of

DEPTH = 128
CONSTANTS = {
    "u": normal(DEPTH, DEPTH, seed=1) / 11,
    "v": normal(DEPTH, DEPTH, seed=2) / 11,
    "g": normal(DEPTH, DEPTH, seed=3) / 11,
    "b": normal(DEPTH, seed=4),
    "unseen": normal(DEPTH, DEPTH, seed=5),
    "twice": normal(DEPTH, DEPTH, seed=6) / 11,
    "table": normal(140, DEPTH, seed=7),
    "half": np.array(0.5, np.float32),
}
NODES = [
    helper.make_node("Gather", ["table", "ids"], ["e"]),
    helper.make_node("Add", ["x", "e"], ["s"]),
    helper.make_node("MatMul", ["s", "u"], ["h"]),
    helper.make_node("Transpose", ["v"], ["turned"], perm=[1, 0]),
    helper.make_node("MatMul", ["s", "turned"], ["k"]),
    helper.make_node("Mul", ["h", "half"], ["halved"]),
    helper.make_node("Mul", ["halved", "k"], ["m"]),
    helper.make_node("Gemm", ["m", "g", "b"], ["r"], transB=1),
    helper.make_node("Sub", ["r", "r"], ["zeros"]),
    helper.make_node("MatMul", ["zeros", "unseen"], ["nothing"]),
    helper.make_node("MatMul", ["r", "twice"], ["t"]),
    helper.make_node("MatMul", ["t", "twice"], ["w"]),
    helper.make_node("Add", ["w", "nothing"], ["z"]),
    helper.make_node("Transpose", ["table"], ["columns"], perm=[1, 0]),
    helper.make_node("MatMul", ["z", "columns"], ["y"]),
]
INPUTS = {"x": f"float32[n,{DEPTH}]", "ids": "int64[n]"}
AXES = {"u": 0, "v": 1, "g": 1, "unseen": 0, "twice": 0, "table": 1}


def model() -> onnx.ModelProto:
    return model_of(NODES, INPUTS, CONSTANTS, outputs=["y"])


def roundings() -> dict[bytes, WeightQuantization]:
    return {
        digest_of(CONSTANTS[name]): WeightQuantization(WeightForm.INT4, axis)
        for name, axis in AXES.items()
    }


def feed() -> dict[str, Any]:
    return {"x": rows_of(0, 200, DEPTH), "ids": np.arange(200) % 140}


def by_name(table: Any) -> dict[str, Any]:
    return {name: table[key] for name in AXES if (key := digest_of(CONSTANTS[name])) in table}


def calibrate(
    folder: Path, changed: onnx.ModelProto | None = None
) -> dict[str, WeightQuantization]:
    folder.mkdir()
    path = save_model(changed or model(), folder)
    return by_name(Calibrator(Reference(path, {}), feed(), folder).quantize(roundings()))


def test_what_multiplies_which_weights() -> None:
    sites = sites_of(Graph(model(), {}), roundings())
    keys = {name: digest_of(CONSTANTS[name]) for name in AXES}
    assert sites.taps == {
        "s": (keys["u"], keys["v"]),
        "m": (keys["g"],),
        "zeros": (keys["unseen"],),
    }
    assert by_name(sites.nearest) == {"twice": TWICE, "table": READ}


def test_a_table_whose_transpose_a_matmul_has_stays_as_it_is() -> None:
    """Decoders from GGUF files hold a tied table so: quantized alike it is stored once."""
    constants = {"table": CONSTANTS["table"], "turned": np.ascontiguousarray(CONSTANTS["table"].T)}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "turned"], ["y"]),
    ]
    tied = model_of(nodes, {"ids": "int64[n]"}, constants, outputs=["y"])
    quantizations = {
        digest_of(array): WeightQuantization(WeightForm.INT4, axis)
        for array, axis in zip(constants.values(), (1, 0), strict=True)
    }
    sites = sites_of(Graph(tied, {}), quantizations)
    assert not sites.taps
    assert set(sites.nearest.values()) == {READ}


def test_weights_in_constant_nodes_and_in_branches() -> None:
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["x", "v"], ["q"])],
        "then",
        [],
        [helper.make_tensor_value_info("q", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(CONSTANTS["v"], "v")],
    )
    nodes = [
        helper.make_node("Constant", [], ["u"], value=numpy_helper.from_array(CONSTANTS["u"])),
        helper.make_node("MatMul", ["x", "u"], ["h"]),
        helper.make_node("If", ["c"], ["k"], then_branch=inner, else_branch=inner),
        helper.make_node("Add", ["h", "k"], ["y"]),
    ]
    inputs = {"x": f"float32[n,{DEPTH}]", "c": "bool[]"}
    branched = with_initializers(model_of(nodes, inputs, {}, outputs=["y"]))
    chosen = {key: one for key, one in roundings().items() if key in map(digest_of, [
        CONSTANTS["u"], CONSTANTS["v"]])}  # fmt: skip
    sites = sites_of(Graph(branched, {}), chosen)
    assert sites.taps == {"x": (digest_of(CONSTANTS["u"]),)}
    assert by_name(sites.nearest) == {"v": ELSEWHERE}


@pytest.mark.slow
def test_each_weight_is_calibrated_by_what_quantized_ones_before_it_give(
    tmp_path: Path,
) -> None:
    calibrated = calibrate(tmp_path / "one")
    reasons = {name: one.nearest for name, one in calibrated.items()}
    assert reasons == {
        "u": None, "v": None, "g": None, "unseen": UNSEEN, "twice": TWICE, "table": READ,
    }  # fmt: skip
    quantized = model()
    before = {digest_of(CONSTANTS[name]): calibrated[name] for name in ("table", "u", "v")}
    quantize_weights(quantized, before)
    quantized.graph.output.append(onnx.ValueInfoProto(name="m"))
    rows = session_of(quantized).run(["m"], feed())[0]
    values = calibrated["g"].values
    assert values is not None
    np.testing.assert_array_equal(
        np.load(values), calibrate_table(CONSTANTS["g"], moments_of(rows), 4)
    )


@pytest.mark.slow
def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    runs = [calibrate(tmp_path / name) for name in ("one", "other")]
    for name in ("u", "v", "g"):
        one, other = (each[name].values for each in runs)
        assert one is not None
        assert other is not None
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_a_model_that_does_not_run_on_the_samples_is_refused(tmp_path: Path) -> None:
    broken = model()
    broken.graph.node[1].op_type = "MatMul"
    with pytest.raises(ImportFailed, match="calibration failed") as caught:
        calibrate(tmp_path / "one", broken)
    assert caught.value.code == "import.calibration"
    assert caught.value.failure.field == "options.calibration"
