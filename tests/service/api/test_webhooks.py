"""Webhooks over HTTP."""

import pytest
from sqlalchemy import select

from service.db.schema import deliveries


def test_a_webhook_is_made_listed_asked_for_and_removed(api):
    created = api.http.post("/v1/webhooks", json={"url": "https://hooks.example/a"})
    assert created.status_code == 201
    webhook = created.json()
    assert webhook.pop("secret").startswith("whsec_")
    assert webhook["events"] == ["alias.moved", "gate.failed", "job.finished"]
    assert api.http.get("/v1/webhooks").json() == {"webhooks": [webhook]}
    path = f"/v1/webhooks/{webhook['id']}"
    assert api.http.post(f"{path}:ping").status_code == 202
    (delivery,) = api.http.get(f"{path}/deliveries").json()["deliveries"]
    assert (delivery["event"], delivery["attempts"]) == ("webhook.ping", 0)
    assert api.http.delete(path).status_code == 204
    assert api.http.delete(path).json()["code"] == "webhook.unknown"
    assert "secret" not in api.http.get("/v1/audit").text


def test_a_failed_gate_is_passed_on_and_audited(api):
    webhook = api.http.post(
        "/v1/webhooks", json={"url": "https://hooks.example/g", "events": ["gate.failed"]}
    ).json()
    job = api.compile(b"a model that got slower").json()
    path = f"/v1/jobs/{job['id']}/gates"
    gates = [{"gate": "latency>5%", "result": "+8.1%"}]
    body = {"target": "native", "failed": gates, "baseline": "sha256:" + "0" * 64}
    assert api.http.post(path, json=body).status_code == 204
    (delivery,) = api.http.get(f"/v1/webhooks/{webhook['id']}/deliveries").json()["deliveries"]
    assert delivery["event"] == "gate.failed"
    with api.services.core.reading() as tx:
        mine = select(deliveries.c.data).where(deliveries.c.webhook_id == webhook["id"])
        data = tx.connection.execute(mine).scalar_one()
    assert data == {"job": job["id"], "name": "m.onnx", "by": data["by"], **body}
    (entry, *_) = api.http.get("/v1/audit").json()["entries"]
    assert (entry["action"], entry["subject"]) == ("gate.fail", job["id"])
    assert entry["detail"]["gates"] == ["latency>5%"]


@pytest.mark.parametrize(
    ("job", "changes", "status", "code"),
    [
        ("absent", {}, 404, "job.unknown"),
        (None, {"target": "riscv64"}, 422, "request.invalid"),
        (None, {"failed": []}, 422, "request.invalid"),
        (None, {"failed": [{"gate": "a\nb", "result": "c"}]}, 422, "request.invalid"),
    ],
)
def test_gates_that_nobody_can_have_failed(api, job, changes, status, code):
    job = job or api.compile(b"a model").json()["id"]
    body = {"target": "native", "failed": [{"gate": "size>2%", "result": "+3%"}], **changes}
    answer = api.http.post(f"/v1/jobs/{job}/gates", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://169.254.169.254/latest",
        "https://user:secret@hooks.example/",
        "https://hooks.example:99999/",
        "ftp://hooks.example/",
        "https:///x",
    ],
)
def test_urls_that_no_message_is_sent_to(api, url):
    answer = api.http.post("/v1/webhooks", json={"url": url})
    assert (answer.status_code, answer.json()["field"]) == (422, "url")


def test_events_that_there_are_not(api):
    body = {"url": "https://hooks.example/", "events": ["alias.removed"]}
    assert api.http.post("/v1/webhooks", json=body).status_code == 422
