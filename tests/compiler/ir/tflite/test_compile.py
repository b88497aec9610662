"""TFLite files from end to end: dims, integers in the bundle, states, inspection."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import relaxd
from compiler.api import compile_model, inspect_request
from compiler.errors import CompileError
from compiler.ir.tflite.file import parse_tflite
from compiler.ir.tflite.model import model_of
from relaxd.contract.request import CompileRequest
from tests.support.models.tflite_files import Op, T, encode
from tests.support.models.tflite_nets import image_net, memory_net

NO_PROFILE = {"profile": False}


def test_an_int8_network_is_right_to_the_bit_at_every_batch(tmp_path: Path) -> None:
    data = image_net()
    manifest = compile_model(
        data, output=tmp_path / "out", dims={"batch": (1, 8)}, options=NO_PROFILE
    )
    assert [spec.to_json() for spec in manifest.inputs] == [
        {"name": "image", "dtype": "int8", "shape": ["batch", 9, 8, 3]}
    ]
    session = onnxruntime.InferenceSession(
        model_of(parse_tflite(memoryview(data))).SerializeToString()
    )
    model, rng = relaxd.load(tmp_path / "out"), np.random.default_rng(0)
    for batch in (1, 2, 5, 8):
        image = rng.integers(-128, 128, (batch, 9, 8, 3)).astype(np.int8)
        wanted = session.run(None, {"image": image})[0]
        np.testing.assert_array_equal(model.run({"image": image})["shares"], wanted)
        assert len(np.unique(wanted)) > 2


def test_the_interpreter_judges_a_build_where_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    for name, data, judge in (
        ("image", image_net(), "ai-edge-litert"),
        ("memory", memory_net(), "onnxruntime"),
    ):
        compile_model(data, output=tmp_path / name, options=NO_PROFILE)
        report = json.loads((tmp_path / name / "numerics.json").read_text())
        assert report["verdict"] == "passed"
        assert report["reference"].startswith(judge)


def test_its_time_is_not_compared_with_that_of_a_model_that_nobody_has(tmp_path: Path) -> None:
    compile_model(image_net(), output=tmp_path / "out", dims={"batch": (1, 2)})
    report = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert report["points"]
    assert not any("reference" in point for point in report["points"])


def test_a_mean_of_integers_keeps_the_sizes_of_the_file(tmp_path: Path) -> None:
    inputs = {"image": "int8[batch,h,8,3]"}
    compile_model(
        image_net(), output=tmp_path / "out", inputs=inputs, dims={"h": (9, 9)}, options=NO_PROFILE
    )
    with pytest.raises(CompileError):
        compile_model(
            image_net(),
            output=tmp_path / "no",
            inputs=inputs,
            dims={"h": (10, 12)},
            options=NO_PROFILE,
        )


def test_a_file_of_one_sample_compiles_for_any_number(tmp_path: Path) -> None:
    tensors = [T("x", (1, 2, 3)), T("y", (1, 6))]
    data = encode(tensors, [Op("RESHAPE", ["x"], ["y"], {"axes": [1, 6]})], ["x"], ["y"])
    inputs = {"x": "float32[n,2,3]"}
    compile_model(data, output=tmp_path / "out", inputs=inputs, options=NO_PROFILE)
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    result = relaxd.load(tmp_path / "out").run({"x": x})["y"]
    np.testing.assert_array_equal(result, x.reshape(4, 6))


def test_a_variable_is_an_input_and_an_output(tmp_path: Path) -> None:
    compile_model(memory_net(), output=tmp_path / "out", options=NO_PROFILE)
    model = relaxd.load(tmp_path / "out")
    rows, calls = np.full((1, 3, 2), -7, np.int8), []
    for number in range(5):
        calls.append(np.full((1, 1, 2), number, np.int8))
        outputs = model.run({"row": calls[-1], "rows": rows})
        rows = outputs["rows.next"]
    np.testing.assert_array_equal(outputs["all"], np.concatenate(calls[1:], 1))


def test_an_inspection_names_operators_of_the_file_and_states(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(memory_net())
    report = inspect_request(path, CompileRequest.of())
    assert report["supported"]
    assert report["state"] == [{"input": "rows", "output": "rows.next", "initial": -7}]
    assert report["operators"]["CONCATENATION"] == 1
    shown = {node["node"]: node.get("outputs") for node in report["nodes"]}
    assert shown["STRIDED_SLICE 4"] == ["int8[1,3,2]"]


def test_an_inspection_says_what_is_not_supported(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    operators = [Op("ABS", ["x"], ["y"]), Op("HASHTABLE_FIND", ["y"], ["z"])]
    path.write_bytes(encode([T(n, (2,)) for n in "xyz"], operators, ["x"], ["z"]))
    report = inspect_request(path, CompileRequest.of())
    assert not report["supported"]
    assert [node["supported"] for node in report["nodes"]] == [True, False]
    assert "HASHTABLE_FIND" in report["nodes"][1]["why"]
