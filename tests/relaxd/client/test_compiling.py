"""`relaxd.compile`, the asynchronous client, typed builds, and the client's settings."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import relaxd
from relaxd.client import AsyncClient, Client
from relaxd.contract.states import State
from tests.service.live import MODEL, Live


def test_compile_on_a_service(api: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api.announce()
    received: list[tuple[str, str]] = []
    monkeypatch.setenv("RELAXD_SERVER", api.url)
    bundles = relaxd.compile(
        MODEL,
        tmp_path / "out",
        dims={"n": "1:8"},
        targets=["x86-64-v2", "x86-64-v3"],
        on_progress=lambda target, message: received.append((target, message)),
    )
    assert list(bundles) == ["x86-64-v2", "x86-64-v3"]
    bundle = bundles["x86-64-v3"]
    assert bundle.path == tmp_path / "out/x86-64-v3"
    assert (bundle.path / "model.so").read_bytes() == MODEL + b"x86-64-v3"
    assert bundle.digest.startswith("sha256:")
    assert bundle.numerics.status == "executed"
    assert ("x86-64-v2", "import") in received
    assert ("x86-64-v2", "succeeded") in received


def test_typed_builds(api: Live) -> None:
    with Client(api.url) as client:
        job = client.compile(MODEL, dims={"n": 3}).wait()
    (build,) = job.results
    assert (build.target, build.state, build.error) == ("native", State.SUCCEEDED, None)
    assert build.artifact is not None
    assert build.artifact.digest == job.builds[0]["artifact"]["digest"]
    assert build.numerics.verdict == "passed"


def test_the_asynchronous_client(api: Live, tmp_path: Path) -> None:
    async def use() -> list[Any]:
        async with AsyncClient(api.url) as client:
            job = await client.compile(MODEL, dims={"n": 4})
            kinds = [event.type async for event in job.events()]
            await job.wait(20)
            folder = await job.pull(directory=tmp_path / "out")
            return [kinds[-1], job.results[0].state, (folder / "model.so").exists()]

    assert asyncio.run(use()) == ["job.finished", State.SUCCEEDED, True]


def test_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXD_SERVER", "http://mine:1")
    monkeypatch.setenv("RELAXD_TOKEN", "secret")

    def header(*arguments: Any) -> str | None:
        with Client(*arguments) as client:
            return client._transport._http.headers.get("Authorization")

    assert header() == "Bearer secret"
    assert header("http://mine:1") == "Bearer secret"
    assert header("http://theirs:1") is None, "another server does not get this one's token"
    assert header("http://theirs:1", "other") == "Bearer other"
    with Client() as client:
        assert client._transport.url == "http://mine:1"


def test_uploads_are_reported_by_bytes(api: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxd.client import upload

    monkeypatch.setattr(upload, "CHUNK", 1000)
    received: list[tuple[int, int]] = []
    with Client(api.url) as client:
        client.compile(bytes(2500), on_upload=lambda done, total: received.append((done, total)))
    assert received == [(1000, 2500), (2000, 2500), (2500, 2500)]
