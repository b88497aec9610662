import io
import json
import tarfile
from datetime import datetime
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.live import MODEL, Live


def test_a_posted_model_is_compiled_within_the_wait(api: Live) -> None:
    answer = api.compile(
        request='{"dims": {"n": "1:8%2", "m": {"min": 2, "max": 4}, "k": 3}}', wait=20
    )
    assert answer.status_code == 200
    job = answer.json()
    assert (job["state"], job["name"]) == ("succeeded", "m.onnx")
    assert job["request"]["dims"] == {
        "n": {"min": 1, "max": 8, "multiple": 2},
        "m": {"min": 2, "max": 4, "multiple": 1},
        "k": {"min": 3, "max": 3, "multiple": 1},
    }
    (build,) = job["builds"]
    assert build["target"] == "native"
    assert build["profile"] == {"measured": True, "load_ms": 7.0}
    assert (
        api.http.get(f"/v2/relaxd/bundles/manifests/{build['artifact']['digest']}").status_code
        == 200
    )
    assert api.http.get(answer.headers["Location"]).json() == job


def test_a_job_shows_its_priority_and_deadline(api: Live) -> None:
    plain = api.compile(b"urgent").json()
    assert (plain["priority"], plain["deadline"]) == (0, None)
    urgent = api.compile(b"urgent", priority=-3, deadline="2099-01-31T10:00:00+02:00").json()
    assert (urgent["priority"], urgent["deadline"]) == (-3, "2099-01-31T08:00:00Z")
    body = {"model": api.upload(b"urgent")}
    job = api.http.post("/v1/jobs", json=body, params={"priority": 10, "deadline": "2h"}).json()
    created, ends = (datetime.fromisoformat(job[name]) for name in ("created_at", "deadline"))
    assert (job["priority"], (ends - created).total_seconds()) == (10, 7200)
    assert api.http.get(f"/v1/jobs/{job['id']}").json()["deadline"] == job["deadline"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/compile"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("priority", 11), ("priority", "x"), ("deadline", "soon"), ("deadline", "0"),
     ("deadline", "2001-01-01T00:00:00Z")],
)  # fmt: skip
def test_an_urgency_that_means_nothing(api: Live, path: str, name: str, value: object) -> None:
    form = {"model": ("m.onnx", MODEL)}
    body = {"json": {"model": api.upload()}} if path == "/v1/jobs" else {"files": form}
    answer = api.http.post(path, params={name: str(value)}, **body)
    assert answer.status_code == 422
    assert name in answer.text


def test_without_a_wait_the_answer_is_the_job_as_it_stands(api: Live) -> None:
    answer = api.compile(b"not waited for")
    assert answer.status_code == 202
    assert (
        api.http.get(answer.headers["Location"], params={"wait": 20}).json()["state"] == "succeeded"
    )


def test_a_second_equal_post_is_answered_from_the_cache(api: Live) -> None:
    first = api.compile(b"twice", wait=20).json()["builds"][0]
    second = api.compile(b"twice", wait=20).json()["builds"][0]
    assert (first["cached"], second["cached"]) == (False, True)
    assert first["artifact"] == second["artifact"]


def test_the_request_part_may_be_left_out_or_be_a_file(api: Live) -> None:
    assert api.http.post("/v1/compile", files={"model": ("m.onnx", MODEL)}).status_code == 202
    files = {"model": ("m.onnx", MODEL), "request": ("request.json", b'{"targets": ["x86-64-v2"]}')}
    assert [
        build["target"] for build in api.http.post("/v1/compile", files=files).json()["builds"]
    ] == ["x86-64-v2"]


def test_samples_may_come_along(api: Live) -> None:
    packed = io.BytesIO()
    np.savez(packed, x=np.zeros(3, np.float32))
    files = {"model": ("m.onnx", MODEL), "samples": ("s.npz", packed.getvalue())}
    job = api.http.post("/v1/compile", files=files).json()
    assert api.services.store.blobs.read(job["request"]["samples"]) == packed.getvalue()


def test_weights_may_be_calibrated_by_the_samples(api: Live) -> None:
    packed = io.BytesIO()
    np.savez(packed, x=np.zeros(3, np.float32))
    options = {"weights": "int4", "calibration": "gptq"}
    files = {
        "model": ("m.onnx", MODEL),
        "samples": ("s.npz", packed.getvalue()),
        "request": ("request.json", json.dumps({"options": options}).encode()),
    }
    answer = api.http.post("/v1/compile", files=files)
    assert answer.status_code == 202
    assert answer.json()["request"]["options"]["calibration"] == "gptq"


@pytest.mark.parametrize(
    ("request_text", "field", "says"),
    [
        ("{", None, "not JSON"),
        ("[]", None, "object"),
        ('{"colour": "red"}', "colour", "unknown field"),
        ('{"model": "sha256:0"}', "model", "unknown field"),
        ('{"dims": {"n": {"min": "1"}}}', "dims.n.min", "integer"),
        ('{"dims": {"n": {"least": 1}}}', "dims.n.least", "unknown field"),
        ('{"dims": {"n": {"min": 8, "max": 2}}}', "dims.n", "min 8 is greater than max 2"),
        ('{"dims": {"n": "eight"}}', "dims.n", "eight"),
        ('{"dims": {"n": [1, 2]}}', "dims.n", "object"),
        ('{"inputs": {"x": "float31[n]"}}', "inputs.x", "float31"),
        ('{"targets": []}', "targets", "at least 1 item"),
        ('{"targets": ["pdp-11"]}', "targets", "pdp-11"),
        ('{"options": {"speed": 11}}', "options.speed", "unknown field"),
        ('{"options": {"verify": 1}}', "options.verify", "boolean"),
        ('{"samples": "sha256:12"}', "samples", "pattern"),
        ('{"samples": "sha256:' + "0" * 64 + '"}', "samples", "no blob"),
        (
            '{"options": {"weights": "int4", "calibration": "gptq"}}',
            "samples",
            "there are none",
        ),
        ('{"options": {"calibration": "gptq"}}', "options.calibration", "int8 and int4"),
        ('{"options": {"calibration": "awq"}}', "options.calibration", "gptq"),
    ],
)
def test_a_bad_request_is_a_problem_with_its_field(
    api: Live, request_text: str, field: str | None, says: str
) -> None:
    answer = api.compile(request=request_text)
    problem = answer.json()
    assert answer.status_code == problem["status"] == 422
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert problem.get("field") == field
    assert says in problem["detail"]
    assert problem["type"] == f"urn:relaxd:problem:{problem['code']}"
    assert problem["request_id"] == answer.headers["X-Request-ID"]


def _post(api: Live, **options: Any) -> httpx.Response:
    return api.http.post("/v1/compile", **options)


@pytest.mark.parametrize(
    ("options", "status", "code", "says"),
    [
        ({"files": {"request": (None, "{}")}}, 422, "request.invalid", "no model"),
        ({"files": {"model": (None, "text")}}, 422, "request.invalid", "not a file"),
        ({"files": {"model": ("m.onnx", b"")}}, 422, "request.invalid", "empty"),
        (
            {"files": {"model": ("m.onnx", b"m"), "extra": (None, "1")}},
            422,
            "request.invalid",
            "extra",
        ),
        ({"json": {"model": "m"}}, 415, "http.unsupported_media_type", "form"),
        (
            {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}},
            400,
            "http.malformed_form",
            "boundary",
        ),
        (
            {"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=b"}},
            400,
            "http.malformed_form",
            "",
        ),
        ({"files": {"model": ("m.onnx", bytes(2 << 20))}}, 413, "http.body_too_large", "1048576"),
        (
            {"files": {"model": ("m.onnx", b"m")}, "params": {"wait": "soon"}},
            422,
            "request.invalid",
            "wait",
        ),
    ],
)
def test_a_bad_form_is_a_problem(
    api: Live, options: dict[str, object], status: int, code: str, says: str
) -> None:
    answer = _post(api, **options)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert says in answer.json()["detail"]


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(api: Live) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n'
    chunks = iter([head, *[bytes(1 << 18)] * 8])
    answer = _post(api, content=chunks, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert answer.status_code == 413


def test_one_key_makes_one_job(api: Live) -> None:
    def post(model: bytes) -> httpx.Response:
        return api.http.post(
            "/v1/compile",
            files={"model": ("m.onnx", model)},
            headers={"Idempotency-Key": "form-key"},
        )

    assert post(b"keyed").json()["id"] == post(b"keyed").json()["id"]
    answer = post(b"another")
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency.conflict")


def tar_of(names: list[str], time: int) -> bytes:
    """A tar of a language model's folder, which the API does not look into further."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(f"model/{name}")
            member.size, member.mtime = len(name), time
            archive.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


FOLDER = ["config.json", "model.safetensors", "tokenizer.json"]


def test_tars_of_equal_files_are_one_model(api: Live) -> None:
    tars = [tar_of(FOLDER, 1), tar_of(FOLDER[::-1], 2), tar_of(["README.md", *FOLDER], 3)]
    models = {api.compile(data).json()["model"] for data in tars}
    assert len(models) == 1
    assert models != {api.compile(tar_of(FOLDER[:2], 1)).json()["model"]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tar_of(["model.safetensors"], 1), "no config.json"),
        (tar_of(["config.json", "pytorch_model.bin"], 1), "a pickle"),
        (tar_of(["config.json", "../model.safetensors"], 1), "leads out"),
        (tar_of(FOLDER, 1)[:1024], "ends early"),
    ],
)
def test_tars_without_a_model_are_refused(api: Live, data: bytes, message: str) -> None:
    answer = api.compile(data)
    assert (answer.status_code, answer.json()["field"]) == (422, "model")
    assert message in answer.json()["detail"]
