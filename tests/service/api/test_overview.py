"""All jobs in brief over real HTTP: a page of them, and the stream of what changes."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.board import Board
from service.domain import Queue
from service.errors import DatabaseUnavailable
from service.identity import Scope
from service.usecases.jobs.overview import Snapshot
from tests.service.live import Live, live
from tests.service.tenancy import House, compile_model, house


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("overview")) as running:
        yield running


def stream(client: httpx.Client) -> Iterator[tuple[str, Any]]:
    """The events of all jobs, as they come."""
    with client.stream("GET", "/v1/overview/events") as answer:
        assert answer.status_code == 200
        kind = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


def test_a_page_of_jobs(api: Live) -> None:
    job = api.compile(wait=20).json()
    document = api.http.get("/v1/overview", params={"limit": 1}).json()
    (brief,) = document["jobs"]
    assert (brief["id"], brief["name"], brief["builds"]) == (job["id"], "m.onnx", {"succeeded": 1})
    assert document["queue"]["queued"] == 0
    assert api.http.get("/v1/overview", params={"text": "nonesuch"}).json()["jobs"] == []
    assert api.http.get("/v1/overview", params={"limit": 0}).status_code == 422
    assert api.http.get("/v1/overview", params={"before": "nope"}).status_code == 404


def test_a_tenant_sees_its_own_jobs(tenants: House) -> None:
    theirs = compile_model(tenants.client("a"))
    assert [job["id"] for job in tenants.client("a").get("/v1/overview").json()["jobs"]] == [
        theirs["id"]
    ]
    assert tenants.client("b").get("/v1/overview").json()["jobs"] == []


def test_the_stream_begins_with_the_queue_and_tells_what_changes(tenants: House) -> None:
    reader, other = tenants.client("a", Scope.READ), tenants.client("b")
    events: Any = stream(reader)
    kind, queue = next(events)
    assert (kind, queue["positions"]) == ("queue", {})
    foreign = compile_model(other, b"another's")
    job = compile_model(tenants.client("a"), b"a fresh model")
    states = []
    for kind, data in events:
        if kind == "job":
            assert data["id"] not in (foreign["id"],)
            states.append(data["state"])
            if data["state"] == "succeeded":
                assert (data["id"], data["builds"]) == (job["id"], {"succeeded": 1})
                break
    events.close()
    assert states[-1] == "succeeded"


class Looked:
    """Jobs of which nothing changes until the looks fail."""

    def __init__(self) -> None:
        self.looks = 0
        self.fails = threading.Event()

    def read_changes(self, last: Snapshot | None) -> tuple[Snapshot, list[Any]]:
        self.looks += 1
        if self.fails.is_set():
            raise DatabaseUnavailable("gone")
        return Snapshot(0.0, {}), []

    def queue(self) -> Queue:
        return Queue(0, 0, 0, {})


def test_many_followers_are_one_look_and_an_error_reaches_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.api.board.LOOK_S", 0.02)
    looked = Looked()

    async def main() -> list[Any]:
        board = Board(lambda tenant: looked)  # type: ignore[arg-type,return-value]
        followers = [board.follow("a") for _ in range(20)]
        await asyncio.gather(*(anext(follower) for follower in followers))
        assert looked.looks <= 2
        looked.fails.set()
        ended = await asyncio.gather(
            *(anext(follower) for follower in followers), return_exceptions=True
        )
        looked.fails.clear()
        again: Any = board.follow("a")
        await anext(again)
        await again.aclose()
        for _ in range(100):
            if not board._tenants:
                break
            await asyncio.sleep(0.02)
        assert not board._tenants
        return ended

    assert all(isinstance(error, DatabaseUnavailable) for error in asyncio.run(main()))


def test_whoever_reads_too_slowly_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.board.LOOK_S", 0.02)
    monkeypatch.setattr("service.api.board.MOST_BEHIND", 2)
    with live(tmp_path) as running:

        async def main() -> list[Any]:
            board = Board(running.services.jobs.of)
            follower = board.follow("default")
            first = await anext(follower)
            for number in range(4):
                await asyncio.to_thread(running.compile, f"m{number}".encode(), wait=20)
            await asyncio.sleep(0.2)
            return [first, *[update async for update in follower]]

        assert len(asyncio.run(main())) <= 3
