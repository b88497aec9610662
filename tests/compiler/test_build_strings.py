"""Models whose inputs or outputs are strings: a build, and what the loader makes of them."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import relaxd
from compiler.errors import ImportFailed, VerifyError
from compiler.verify.inputs.samples import to_npz
from compiler.verify.reference.onnx import OnnxRuntime, prepare
from relaxd.cli.app import app
from relaxd.contract.request import CompileRequest
from relaxd.errors import InputError
from tests.compiler.building import QUICK, build, failing, report
from tests.compiler.text_models import (
    FLOAT,
    STRING,
    bert,
    model_of,
    node,
    pipeline,
    text_classifier,
)

CITIES = ["Berlin", "München", "", "New York", "Rome", "berlin"]


def reference(model: onnx.ModelProto, folder: Path) -> OnnxRuntime:
    """ONNX Runtime, with tensors in place of maps, and cases that every machine has."""
    for one in model.graph.node:
        if one.op_type == "StringNormalizer":
            one.attribute.append(onnx.helper.make_attribute("locale", "C.UTF-8"))
    path = folder / "model.onnx"
    onnx.save(model, path)
    folder.joinpath("copy").mkdir()
    return OnnxRuntime(str(prepare(model, path, CompileRequest(), folder / "copy").path))


def column(values: list[str]) -> np.ndarray:
    return np.array(values, object).reshape(-1, 1)


def test_columns_of_strings_give_what_onnxruntime_gives(tmp_path: Path) -> None:
    manifest = build(tmp_path / "out", pipeline(), dims={"n": (1, 64)})
    assert [spec.name for spec in manifest.inputs] == ["age", "city_index", "kind_index"]
    assert [spec.name for spec in manifest.outputs] == ["label_index", "output_probability"]
    compared = report(tmp_path / "out", "numerics.json")["strings"]
    assert (compared["verdict"], compared["refused"]) == ("passed", 0)
    model = relaxd.load(tmp_path / "out")
    assert [str(spec) for spec in model.inputs] == [
        "city=string[n,1]",
        "kind=string[n,1]",
        "age=float32[n,1]",
    ]
    assert [str(spec) for spec in model.outputs] == [
        "output_label=string[n]",
        "output_probability=float32[n,2]",
    ]
    asked = reference(pipeline(), tmp_path)
    for n in (1, 2, 7, 33):
        random = np.random.default_rng(n)
        feeds = {
            "city": random.choice(np.array(CITIES, object), (n, 1)),
            "kind": random.choice(np.array(["a", "b", "c"], object), (n, 1)),
            "age": random.standard_normal((n, 1)).astype(np.float32),
        }
        wanted, outputs = asked.run(feeds, {}), model.run(feeds)
        assert list(outputs) == ["output_label", "output_probability"]
        assert outputs["output_label"].tolist() == wanted["output_label"].tolist()
        np.testing.assert_allclose(
            outputs["output_probability"], wanted["output_probability"], 1e-5, 1e-6
        )


def test_texts_give_what_onnxruntime_gives(tmp_path: Path) -> None:
    build(tmp_path / "out", text_classifier(), dims={"text_0": (1, 64)})
    assert report(tmp_path / "out", "numerics.json")["strings"]["verdict"] == "passed"
    model, asked = relaxd.load(tmp_path / "out"), reference(text_classifier(), tmp_path)
    texts = ["The cat sat", "", "a DOG, the dog!", "ÜBER 東京", "the cat the cat", "#"]
    for rows in (texts, texts[:1], texts[1:2], texts * 5):
        wanted, outputs = asked.run({"text": column(rows)}, {}), model.run({"text": column(rows)})
        assert outputs["label"].tolist() == wanted["label"].tolist()
        np.testing.assert_allclose(outputs["scores"], wanted["scores"], 1e-5, 1e-6)


def test_positions_may_stand_for_strings(tmp_path: Path) -> None:
    build(tmp_path / "out", pipeline(), dims={"n": (1, 8)}, options=QUICK)
    model = relaxd.load(tmp_path / "out")
    age = np.ones((2, 1), np.float32)
    by_strings = model.run({"city": [["Rome"], [""]], "kind": [["b"], ["a"]], "age": age})
    positions = {"city_index": np.array([[-1], [2]]), "kind_index": np.array([[1], [0]])}
    by_positions = model.run({**positions, "age": age})
    library = model.library.run({**positions, "age": age})
    assert by_strings["output_label"].tolist() == by_positions["output_label"].tolist()
    assert list(library) == ["label_index", "output_probability"]
    listed = model.run([[["Rome"], [""]], [["b"], ["a"]], age])
    assert listed["output_label"].tolist() == by_strings["output_label"].tolist()


def test_a_session_and_an_out_keep_strings(tmp_path: Path) -> None:
    build(tmp_path / "out", pipeline(), dims={"n": (1, 8)}, options=QUICK)
    model = relaxd.load(tmp_path / "out").session(1)
    out = np.empty((1, 2), np.float32)
    inputs = {"city": [["Berlin"]], "kind": [["a"]], "age": np.ones((1, 1), np.float32)}
    outputs = model.run(inputs, out={"output_probability": out})
    assert outputs["output_probability"] is out
    assert outputs["output_label"].tolist() in (["no"], ["yes"])


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> relaxd.Model:
    """A model that refuses unknown categories."""
    folder = tmp_path_factory.mktemp("strict") / "out"
    build(folder, pipeline(zeros=0), dims={"n": (1, 8)}, options=QUICK)
    return relaxd.load(folder)


@pytest.mark.parametrize(
    ("city", "message"),
    [
        ([["Berlin"], ["Rome"]], "Rome"),
        ([[1.5]], "takes strings"),
        (["Berlin"], r"takes string\[n,1\]"),
        ([["Berlin", "Rome"]], r"takes string\[n,1\]"),
        ([["\ud800"]], "no text"),
        ([["a\0b"]], "NUL"),
    ],
)
def test_strings_that_the_model_does_not_take(
    strict: relaxd.Model, city: object, message: str
) -> None:
    rows = len(np.asarray(city, object))
    with pytest.raises(InputError, match=message):
        strict.run({"city": city, "kind": [["a"]] * rows, "age": np.ones((rows, 1), np.float32)})


def test_inputs_that_are_missing_or_unknown(strict: relaxd.Model) -> None:
    with pytest.raises(InputError, match="'city' is missing"):
        strict.run({"kind": [["a"]], "age": np.ones((1, 1), np.float32)})
    with pytest.raises(InputError, match="no input 'town'"):
        strict.run({"town": [["a"]]})


def test_a_tokenizer_in_the_graph(tmp_path: Path) -> None:
    build(tmp_path / "out", bert(), dims={"ids_0": (2, 64)})
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["strings"]["verdict"] in ("passed", "not_run")
    if numerics["strings"]["verdict"] == "not_run":
        assert any("onnxruntime-extensions" in warning for warning in numerics["warnings"])
    model = relaxd.load(tmp_path / "out")
    (ids, mask) = model.library.inputs
    assert [str(ids), str(mask)] == ["ids=int64[ids_0]", "mask=int64[ids_0]"]
    table = onnx.numpy_helper.to_array(bert().graph.initializer[0])
    (embedding,) = model.run({"text": ["Hello world"]}).values()
    np.testing.assert_allclose(embedding, table[[2, 5, 6, 3]].mean(0, keepdims=True), 1e-5)


def test_samples_may_be_strings(tmp_path: Path) -> None:
    samples = {
        "city": column(["Berlin", "Rome"]).astype(str),
        "kind": column(["a", "b"]).astype(str),
        "age": np.ones((2, 1), np.float32),
    }
    to_npz(tmp_path / "samples.npz", samples)
    build(tmp_path / "out", pipeline(), dims={"n": (1, 8)}, samples=tmp_path / "samples.npz")
    points = report(tmp_path / "out", "numerics.json")["points"]
    assert {"label": "sample", "dims": {"n": 2}} in points
    samples["city"] = samples["city"].reshape(-1)
    to_npz(tmp_path / "samples.npz", samples)
    error = failing(
        tmp_path / "other",
        VerifyError,
        pipeline(),
        dims={"n": (1, 8)},
        samples=tmp_path / "samples.npz",
    )
    assert error.code == "verify.bad_samples"


def test_the_command_line_takes_texts(tmp_path: Path) -> None:
    build(tmp_path / "out", pipeline(), dims={"n": (1, 8)})
    runner, folder = CliRunner(env={"COLUMNS": "200"}), str(tmp_path / "out")
    texts = ["--text", "city=Berlin", "--text", "city=", "--text", "kind=a", "--text", "kind=b"]
    ran = runner.invoke(app, ["run", folder, *texts, "--dim", "n=2", "--json"])
    label = json.loads(ran.stdout)["outputs"]["output_label"]
    assert (label["dtype"], label["shape"]) == ("string", [2])
    assert set(label["values"]) <= {"no", "yes"}
    plain = runner.invoke(app, ["run", folder])
    assert "output_label: " in plain.stdout
    refused = runner.invoke(app, ["run", folder, "--text", "town=Rome"])
    assert refused.exit_code == 2
    assert "no input 'town' of strings" in refused.stderr
    shown = runner.invoke(app, ["show", folder]).stdout
    assert "city_index int64[n,1]" in shown
    assert "samples of strings" in shown


def test_labels_by_conditions(tmp_path: Path) -> None:
    nodes = [
        node("Greater", ["x", "zero"], ["above"]),
        node("Where", ["above", "yes", "no"], ["label"]),
        node("StringNormalizer", ["label"], ["y"], case_change_action="UPPER"),
    ]
    words = {"yes": np.array(["yes"], object), "no": np.array(["no"], object)}
    constants = {"zero": np.zeros(1, np.float32), **words}
    model = model_of(nodes, [("x", FLOAT, ["n"])], [("y", STRING)], constants)
    build(tmp_path / "out", model, dims={"n": (1, 8)})
    assert report(tmp_path / "out", "numerics.json")["strings"]["verdict"] == "passed"
    outputs = relaxd.load(tmp_path / "out").run({"x": np.array([1, -1], np.float32)})
    assert outputs["y"].tolist() == ["YES", "NO"]


def test_declared_axes_of_strings(tmp_path: Path) -> None:
    manifest = build(
        tmp_path / "out",
        text_classifier(),
        dims={"batch": (1, 8)},
        inputs={"text": "string[batch,1]"},
        options=QUICK,
    )
    assert [str(spec) for spec in manifest.inputs] == ["counts=float32[batch,7]"]
    assert manifest.strings is not None
    assert str(manifest.strings.inputs[0]) == "text=string[batch,1]"


def test_strings_between_two_parts_are_refused_by_name(tmp_path: Path) -> None:
    model = pipeline()
    del model.graph.output[1:]
    nodes = [one for one in model.graph.node if one.op_type not in ("Identity", "ZipMap")]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    again = node(
        "LabelEncoder",
        ["label"],
        ["output_label"],
        domain="ai.onnx.ml",
        keys_strings=["no", "yes"],
        values_int64s=[0, 1],
    )
    model.graph.node.append(again)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    error = failing(tmp_path / "out", ImportFailed, model, dims={"n": (1, 8)})
    assert (error.code, error.failure.op) == ("import.strings", "ai.onnx.ml.LabelEncoder")
    assert "library would have to make" in error.failure.message
    assert "extract_model" in str(error.failure.hint)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("StringSplit", {"delimiter": " "}, "none of the operators"),
        ("StringNormalizer", {"locale": "tr_TR.UTF-8"}, "cases of tr_TR"),
    ],
)
def test_operators_that_no_step_has(
    tmp_path: Path, op: str, attributes: dict[str, object], message: str
) -> None:
    outputs = ["parts", "count"] if op == "StringSplit" else ["parts"]
    nodes = [
        node(op, ["x"], outputs, **attributes),
        node("OneHotEncoder", ["parts"], ["y"], domain="ai.onnx.ml", cats_strings=["a"]),
    ]
    model = model_of(nodes, [("x", STRING, ["n"])], [("y", FLOAT)])
    error = failing(tmp_path / "out", ImportFailed, model, dims={"n": (1, 8)})
    assert message in error.failure.message


def test_a_model_of_strings_alone_is_refused(tmp_path: Path) -> None:
    nodes = [node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER")]
    model = model_of(nodes, [("x", STRING, ["n"])], [("y", STRING)])
    error = failing(tmp_path / "out", ImportFailed, model, dims={"n": (1, 8)})
    assert error.code == "import.strings"
