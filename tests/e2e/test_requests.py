"""Bad requests get a typed error with the field at fault, and the service goes on."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from relaxd.errors import RelaxdError
from tests.e2e import graphs
from tests.e2e.deployment import Deployment
from tests.support import plain_http

# What is refused is the same in either form of the service.
pytestmark = pytest.mark.parametrize("service", ["embedded"], indirect=True)

GOOD = graphs.dense()


def failure(answer: httpx.Response) -> dict[str, Any]:
    """The problem, or the error of the job's build: both carry `code`, `field` and `hint`."""
    if answer.headers["content-type"] == "application/problem+json":
        assert 400 <= answer.status_code < 500
        document: dict[str, Any] = answer.json()
        return document | {"message": document["detail"]}
    job = answer.json()
    assert job["state"] == "failed", job
    return dict(job["builds"][0]["error"])


@pytest.mark.parametrize(
    ("model", "request_text", "field", "says"),
    [
        (b"", "{}", "model", "empty"),
        (b"not a protobuf at all", "{}", "model", "ONNX"),
        (GOOD[: len(GOOD) // 2], "{}", "model", "truncated"),
        (GOOD, '{"dims": {"depth": "1:4"}}', "dims.depth", "depth"),
        (GOOD, '{"dims": {"n": {"min": 8, "max": 2}}}', "dims.n", "min 8 is greater than max 2"),
        (GOOD, '{"dims": {"n": "eight"}}', "dims.n", "eight"),
        (GOOD, '{"targets": ["pdp-11"]}', None, "pdp-11"),
        (GOOD, '{"inputs": {"x": "float32[n,9]"}}', "inputs.x", "9"),
        (GOOD, '{"inputs": {"z": "float32[n,8]"}}', "inputs.z", "z"),
        (GOOD, '{"options": {"speed": 11}}', "options.speed", "speed"),
        (GOOD, '{"colour": "red"}', "colour", "colour"),
        (GOOD, "{", None, "JSON"),
    ],
    ids=[
        "empty",
        "not-onnx",
        "truncated",
        "unknown-dim",
        "min-over-max",
        "unreadable-dim",
        "unknown-target",
        "contradicted-shape",
        "unknown-input",
        "unknown-option",
        "unknown-field",
        "not-json",
    ],
)
def test_a_bad_request_names_the_fault(
    service: Deployment, model: bytes, request_text: str, field: str | None, says: str
) -> None:
    result = failure(service.post(model, request_text))
    assert result["code"]
    assert says in json.dumps(result), result
    if field:
        assert result["field"] == field, result
    assert service.post(GOOD, "{}").json()["state"] == "succeeded"


def test_a_form_without_a_model_is_refused(service: Deployment) -> None:
    answer = plain_http.post(f"{service.url}/v1/compile", files={"request": (None, "{}")})
    assert (answer.status_code, answer.json()["field"]) == (422, "model")


def test_every_node_without_support_is_named(service: Deployment) -> None:
    oddities = {"first_oddity", "second_oddity", "third_oddity"}
    error = failure(service.post(graphs.unsupported_model(), "{}"))
    assert error["code"] == "import.unsupported_op"
    assert oddities <= set(_strings(error)), error
    with service.client() as client:
        report = client.inspect(graphs.unsupported_model())
    assert oddities <= set(_strings(report)), report
    assert "fine" not in set(_strings(error))


def test_dims_keep_the_names_that_the_model_gives_them(service: Deployment, tmp_path: Path) -> None:
    import relaxd

    model, dims = graphs.relu("seq-len", "批次", "1"), {"seq-len": "1:64", "1": {"max": 4}}
    with service.client() as client:
        assert client.inspect(model, dims=dims)["dims"].keys() == {"seq-len", "批次", "1"}
        job = service.post(model, json.dumps({"dims": dims})).json()
        assert job["request"]["dims"].keys() == dims.keys()
        library = relaxd.load(client.pull(job["id"], tmp_path / "named"))
        full = client.inspect(model, inputs={"x": 'float32[2*"a b","in",3]'})
    assert library.inputs[0].text == 'float32["seq-len","批次","1"]'
    assert [axis.text for axis in library.outputs[0].shape] == ['"seq-len"', '"批次"', '"1"']
    assert full["inputs"][0]["shape"] == ['2 * "a b"', '"in"', 3]
    x = np.linspace(-1, 1, 24, dtype="f4").reshape(3, 2, 4)
    np.testing.assert_array_equal(library.run({"x": x})["y"], np.maximum(x, 0))
    with pytest.raises(RelaxdError, match='"seq-len" must be 1 to 64'):
        library.run({"x": np.ones((65, 1, 1), "f4")})
    error = failure(service.post(model, '{"dims": {"seq": "1:4"}}'))
    hint = 'did you mean seq-len? its dims are "1", "seq-len", "批次"'
    assert (error["field"], error["hint"]) == ("dims.seq", hint)


def _strings(document: Any) -> list[str]:
    if isinstance(document, dict):
        return [text for key, value in document.items() for text in (key, *_strings(value))]
    if isinstance(document, list):
        return [text for value in document for text in _strings(value)]
    return [document] if isinstance(document, str) else []


@pytest.mark.parametrize(
    ("feed", "says"),
    [
        ({"x": np.ones((2, 8), np.float64)}, ["x", "float64", "float32"]),
        ({"x": np.ones((2, 9), np.float32)}, ["x", "9", "8"]),
        ({"x": np.ones((5, 8), np.float32)}, ["x", "n", "5", "1 to 4"]),
        ({"x": np.ones(8, np.float32)}, ["x"]),
        ({}, ["x"]),
        ({"x": np.ones((2, 8), np.float32), "z": np.ones(1, np.float32)}, ["z"]),
    ],
    ids=["dtype", "fixed-axis", "out-of-range", "rank", "missing", "unknown"],
)
def test_a_bad_call_names_the_fault(
    dense_bundle: Path, feed: dict[str, np.ndarray], says: list[str]
) -> None:
    import relaxd

    model = relaxd.load(dense_bundle)
    with pytest.raises(RelaxdError) as caught:
        model.run(feed)
    for word in says:
        assert word in str(caught.value)
    assert model.run({"x": np.ones((4, 8), np.float32)})["y"].shape == (4, 8)


@pytest.fixture(scope="module")
def dense_bundle(service: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = service.post(GOOD, '{"dims": {"n": "1:4"}}').json()
    with service.client() as client:
        return client.pull(job["id"], tmp_path_factory.mktemp("dense") / "bundle")
