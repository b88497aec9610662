"""The program of serving-alias.md, which follows an alias: a service moves it under requests."""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from artifacts.oci import bundle_annotations, publish_bundle
from service.usecases.webhooks.delivering import sign
from tests.relaxd.test_serving_page import load_page
from tests.service.live import Live, live

SECRET = "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Live]:
    folder = tmp_path / "api"
    folder.mkdir()
    with live(folder, lease_s=600) as running:
        yield running


def register(api: Live, bundle: Path, folder: Path, name: str) -> int:
    """The bundle under that name of its own, as the next version of `twice`."""
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "name": name}))
    blobs = api.services.store.blobs
    digest = publish_bundle(blobs, folder, bundle_annotations("key", "native")).digest
    answer = api.http.post("/v1/models/twice/versions", json={"digest": digest})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["version"])


def move(api: Live, version: int) -> None:
    body = {"version": str(version)}
    assert api.http.put("/v1/models/twice/aliases/prod", json=body).is_success


def wait_for(client: TestClient, version: int) -> None:
    until = time.monotonic() + 120
    while client.get("/readyz").json()["version"] != version:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_alias_moves_under_requests(
    api: Live, bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        register(api, bundles / "twice", tmp_path / name, name) for name in ("one", "two")
    )
    move(api, first)
    variables = {"MODEL": "twice@prod", "RELAXD_SERVER": api.url, "WEBHOOK_SECRET": SECRET}
    for name, value in {**variables, "POLL_S": "600"}.items():
        monkeypatch.setenv(name, value)
    program: Any = load_page("follow")
    ended, answers = threading.Event(), []

    def ask() -> None:
        while not ended.is_set():
            answer = client.post("/predict", json={"x": [1.0, 2.0]})
            answers.append((answer.status_code, answer.json(), answer.headers["model-version"]))

    with TestClient(program.app) as client:
        wait_for(client, first)
        asking = [threading.Thread(target=ask) for _ in range(3)]
        for thread in asking:
            thread.start()
        try:
            move(api, second)
            assert client.post("/moved", content=b"{}").status_code == 401
            forged = sign(SECRET, "msg", int(time.time()) - 3600, b"{}")
            assert client.post("/moved", content=b"{}", headers=forged).status_code == 401
            assert client.get("/readyz").json() == {"version": first}
            headers = sign(SECRET, "msg", int(time.time()), b"{}")
            assert client.post("/moved", content=b"{}", headers=headers).status_code == 204
            wait_for(client, second)
            seen = len(answers)
            while len(answers) < seen + 5:
                time.sleep(0.02)
        finally:
            ended.set()
            for thread in asking:
                thread.join()
        assert client.post("/predict", json={"z": [1.0]}).status_code == 422
    assert {answer[:2] == (200, {"y": [2.0, 4.0]}) for answer in answers} == {True}
    assert [answers[0][2], answers[-1][2]] == [str(first), str(second)]


def test_a_service_that_is_away_stops_nothing(
    api: Live, bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move(api, register(api, bundles / "twice", tmp_path / "one", "one"))
    for name, value in {"MODEL": "twice@prod", "RELAXD_SERVER": api.url, "POLL_S": "0.05"}.items():
        monkeypatch.setenv(name, value)
    program: Any = load_page("follow")
    with TestClient(program.app) as client:
        wait_for(client, 1)
        asked: list[int] = []

        def version(*arguments: object) -> None:
            asked.append(1)
            raise program.RelaxdError("the service is away")

        monkeypatch.setattr(program.client, "version", version)
        until = time.monotonic() + 120
        while len(asked) < 3:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert client.post("/predict", json={"x": [1.0]}).json() == {"y": [2.0]}
