"""Inspecting models, and the list of targets."""

import hashlib
import json

from tests.service.live import MODEL, Live


def test_inspect_takes_a_form_or_a_digest(api: Live) -> None:
    report = api.http.post("/v1/inspect", files={"model": ("m.onnx", MODEL)}).json()
    digest = f"sha256:{hashlib.sha256(MODEL).hexdigest()}"
    assert report == {"inputs": [], "model": digest, "model_bytes": len(MODEL)}
    assert api.http.post("/v1/inspect", json={"model": api.upload()}).json() == report
    assert api.http.post("/v1/inspect", content=b"x").status_code == 415
    problem = api.http.post(
        "/v1/inspect", content=b'{"model": 1}', headers={"Content-Type": "application/json"}
    ).json()
    assert (problem["code"], problem["field"]) == ("request.invalid", "model")


def test_targets_name_what_they_have(api: Live) -> None:
    targets = {target["name"]: target for target in api.http.get("/v1/targets").json()["targets"]}
    assert "avx2" in targets["x86-64-v3"]["isa"]
    assert json.dumps(targets["native"]["workers"]) == "[]"
