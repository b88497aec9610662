"""Webhooks over HTTP."""

import pytest


def test_a_webhook_is_made_listed_asked_for_and_removed(api):
    created = api.http.post("/v1/webhooks", json={"url": "https://hooks.example/a"})
    assert created.status_code == 201
    webhook = created.json()
    assert webhook.pop("secret").startswith("whsec_")
    assert webhook["events"] == ["alias.moved", "job.finished"]
    assert api.http.get("/v1/webhooks").json() == {"webhooks": [webhook]}
    path = f"/v1/webhooks/{webhook['id']}"
    assert api.http.post(f"{path}:ping").status_code == 202
    (delivery,) = api.http.get(f"{path}/deliveries").json()["deliveries"]
    assert (delivery["event"], delivery["attempts"]) == ("webhook.ping", 0)
    assert api.http.delete(path).status_code == 204
    assert api.http.delete(path).json()["code"] == "webhook.unknown"
    assert "secret" not in api.http.get("/v1/audit").text


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
