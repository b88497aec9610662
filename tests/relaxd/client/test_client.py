import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from compiler.errors import CompileCancelled, ImportFailed
from relaxd.client import Client, JobFailed, WaitTimeout
from relaxd.contract.states import State
from relaxd.errors import DeclarationError, ServerError, ServerUnreachable
from tests.service.live import Live


def test_compile_wait_and_pull(client: Client, tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"a model from a file")
    job = client.compile(model, dims={"n": (1, 8)}, targets=["x86-64-v2", "x86-64-v3"])
    assert job.wait(20).state is State.SUCCEEDED
    assert job.document["name"] == "net.onnx"
    folder = job.pull("x86-64-v3", tmp_path / "out")
    assert (folder / "model.so").read_bytes() == b"a model from a file" + b"x86-64-v3"
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        "model.so",
        "profile.json",
        "numerics.json",
    }
    assert client.pull(job.id, tmp_path / "again", "x86-64-v2") == tmp_path / "again"
    assert [result.id for result in client.jobs(limit=1)] == [job.id]
    assert client.job(job.id).state is State.SUCCEEDED


def test_a_model_may_be_bytes_a_proto_or_a_digest(client: Client, api: Live) -> None:
    class Proto:
        def SerializeToString(self) -> bytes:  # noqa: N802
            return b"proto"

    jobs = [client.compile(model) for model in (b"proto", Proto(), api.upload(b"proto"))]
    assert len({job.document["model"] for job in jobs}) == 1


def test_samples_may_be_arrays(client: Client, api: Live) -> None:
    job = client.compile(b"sampled", samples={"x": np.arange(3)})
    stored = api.services.store.blobs.read(job.document["request"]["samples"])
    assert stored.startswith(b"PK")


def test_events_come_in_order_and_end(client: Client) -> None:
    events = list(client.compile(b"followed").events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "job.finished"


def test_a_job_that_is_over_has_nothing_more_to_tell(client: Client) -> None:
    job = client.compile(b"over").wait(20)
    assert list(job.events(after=list(job.events())[-1].seq)) == []
    assert "compiling" in job.logs("native")


def test_waiting_cancelling_and_failing(
    client: Client, api: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wait(cancelled: object) -> None:
        while not cancelled():  # type: ignore[operator]
            threading.Event().wait(0.02)
        raise CompileCancelled("cancelled", reason="cancelled")

    monkeypatch.setattr(api.compiler, "behaviour", wait)
    job = client.compile(b"cancelled")
    with pytest.raises(WaitTimeout, match="still"):
        job.wait(0.1)
    assert job.cancel().wait(20).state is State.CANCELLED
    with pytest.raises(JobFailed, match="cancelled"):
        job.pull(directory=tmp_path / "out")


def test_a_failure_says_what_and_where(
    client: Client, api: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(cancelled: object) -> None:
        raise ImportFailed(
            "no such operator", reason="unsupported_op", node="/a", op="Odd", hint="replace it"
        )

    monkeypatch.setattr(api.compiler, "behaviour", fail)
    job = client.compile(b"failing").wait(20)
    assert job.state is State.FAILED
    with pytest.raises(JobFailed, match="no such operator") as caught:
        job.pull(directory=tmp_path / "out")
    assert (caught.value.failure["node"], caught.value.hint) == ("/a", "replace it")
    assert not (tmp_path / "out").exists()


def test_inspect_and_targets(client: Client) -> None:
    assert client.inspect(b"looked at")["model_bytes"] == 9
    assert "native" in [target["name"] for target in client.targets()]


def test_declarations_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(DeclarationError, match="min 8"):
        Client("http://127.0.0.1:9").compile(b"m", dims={"n": (8, 2)})


def test_a_file_that_is_not_there(client: Client) -> None:
    with pytest.raises(DeclarationError, match="cannot read") as caught:
        client.compile("nonesuch.onnx")
    assert caught.value.field == "model"


def test_problems_keep_their_document(client: Client) -> None:
    with pytest.raises(ServerError, match="no job has the id") as caught:
        client.job("nonesuch")
    assert (caught.value.status, caught.value.problem["code"]) == (404, "job.unknown")
    with pytest.raises(ServerError) as caught:
        client.compile(b"m", targets=["pdp-11"])
    assert (caught.value.problem["field"], caught.value.hint) == (
        "targets",
        caught.value.problem["hint"],
    )


@pytest.mark.parametrize("url", ["127.0.0.1:8484", "ftp://somewhere", ""])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ServerUnreachable, match="not the URL"):
        Client(url)


def test_the_client_needs_no_server_code() -> None:
    code = "import relaxd.client, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"service", "artifacts", "compiler", "tvm", "torch", "onnx"} & set(loaded)
