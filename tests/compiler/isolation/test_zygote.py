"""Forks of the zygote, beside processes that are started."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from onnx import TensorProto, helper

from compiler.isolation import zygote
from compiler.isolation.child import run_child
from compiler.isolation.messages import InspectJob
from compiler.isolation.meter import Meter
from compiler.isolation.starting import Limits, arguments, environment
from tests.compiler.building import build

SOON = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[zygote.Zygote]:
    with zygote.keep_zygote(start=True):
        current = zygote.current()
        assert current is not None
        yield current


class Waiting:
    """A fork whose job does not come until `job` is closed."""

    def __init__(self, running: zygote.Zygote, folder: Path) -> None:
        source, self.job = os.pipe()
        self.messages, writer = os.pipe()
        with open(source, "rb") as stdin:
            self.process = running.fork(
                lambda parent: arguments(zygote.MESSAGES, parent, Limits(), None),
                stdin=stdin,
                messages=writer,
                cwd=folder,
                env=environment(folder),
            )
        os.close(writer)


@pytest.fixture
def waiting(running: zygote.Zygote, tmp_path: Path) -> Iterator[Callable[[], Waiting]]:
    forks: list[Waiting] = []

    def wait() -> Waiting:
        folder = tmp_path / str(len(forks))
        folder.mkdir()
        forks.append(Waiting(running, folder))
        return forks[-1]

    yield wait
    for fork in forks:
        os.close(fork.job)
        os.close(fork.messages)
        fork.process.terminate()
        fork.process.wait(SOON)
        fork.process.stdout.close()


def descriptors(pid: int) -> set[str]:
    return {number.name for number in Path(f"/proc/{pid}/fd").iterdir()}


def has_its_own(pid: int) -> bool:
    return descriptors(pid) == {"0", "1", "2", "3"}


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SOON
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def test_a_fork_builds_what_a_new_process_builds(tmp_path, monkeypatch):
    forked = build(tmp_path / "forked", target="x86-64-v3")
    monkeypatch.setattr(zygote, "current", lambda: None)
    started = build(tmp_path / "started", target="x86-64-v3")
    assert forked.builder == started.builder
    assert forked.files["model.so"] == started.files["model.so"]
    assert forked.files["kernels.json"] == started.files["kernels.json"]


def test_the_kernels_count_is_reported_of_processes_that_no_sample_saw(
    running, tmp_path, monkeypatch
):
    monkeypatch.setattr(Meter, "sample", lambda meter, family, stage: 0)
    model = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    (tmp_path / "m.onnx").write_bytes(helper.make_model(model).SerializeToString())
    before, used = psutil.Process(running.start()).cpu_times(), []
    run_child(InspectJob(str(tmp_path / "m.onnx"), {}), on_usage=used.append)
    after = psutil.Process(running.start()).cpu_times()
    counted = sum(stage.cpu_seconds for stage in used)
    waited = after.children_user + after.children_system
    waited -= before.children_user + before.children_system
    assert counted > 0.02
    assert abs(counted - waited) < 0.03, "but for the ticks in which the kernel tells it"


def test_a_fork_has_the_descriptors_of_no_other(waiting):
    first, second = waiting(), waiting()
    for fork in (first, second):
        assert eventually(partial(has_its_own, fork.process.pid))


def test_it_has_one_thread(running, waiting):
    """A fork copies no other, nor what another was about to do."""
    waiting()
    own = Path(f"/proc/{running.start()}")
    assert "libtvm" in (own / "maps").read_text()
    assert len(list((own / "task").iterdir())) == 1


def test_no_setting_of_ours_reaches_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RELAXD_TOKEN", "a secret")
    with zygote.keep_zygote(start=True):
        current = zygote.current()
        assert current is not None
        fork = Waiting(current, tmp_path)
        assert b"a secret" not in Path(f"/proc/{fork.process.pid}/environ").read_bytes()
        os.close(fork.job)
        os.close(fork.messages)
        assert fork.process.wait(SOON) != 0
        assert b"JSONDecodeError" in fork.process.stdout.read()
        fork.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_how_a_fork_ended_is_told(waiting, number):
    fork = waiting()
    assert fork.process.poll() is None
    os.kill(fork.process.pid, number)
    assert fork.process.wait(SOON) == -number
    assert fork.process.poll() == -number


def test_forks_end_with_the_zygote_and_the_next_come_from_another(tmp_path):
    with zygote.keep_zygote(start=True):
        current = zygote.current()
        assert current is not None
        before, fork = current.start(), Waiting(current, tmp_path)
        os.kill(before, signal.SIGKILL)
        assert fork.process.wait(SOON) == -signal.SIGKILL
        os.close(fork.job)
        os.close(fork.messages)
        fork.process.stdout.close()
        assert eventually(lambda: not Path(f"/proc/{fork.process.pid}/exe").exists())
        (tmp_path / "after").mkdir()
        after = Waiting(current, tmp_path / "after")
        assert current.start() != before
        os.close(after.job)
        os.close(after.messages)
        assert after.process.wait(SOON) == 1
        after.process.stdout.close()


def test_a_zygote_whose_end_is_not_told_yet_is_followed_by_another(tmp_path, monkeypatch):
    """Its line is closed before `waitpid` has its status."""
    with zygote.keep_zygote(start=True):
        current = zygote.current()
        assert current is not None
        before = current.start()
        os.kill(before, signal.SIGKILL)
        with monkeypatch.context() as patches:
            patches.setattr(current._process, "poll", lambda: None)
            fork = Waiting(current, tmp_path)
        assert current.start() != before
        os.close(fork.job)
        os.close(fork.messages)
        assert fork.process.wait(SOON) == 1
        fork.process.stdout.close()


def test_it_ends_with_its_block():
    with zygote.keep_zygote(start=True):
        current = zygote.current()
        assert current is not None
        pid = current.start()
    assert not Path(f"/proc/{pid}").exists()
    assert zygote.current() is not current


def test_a_request_that_is_too_long_is_refused(running, tmp_path):
    with open(os.devnull, "rb") as stdin, pytest.raises(OSError, match="bytes of arguments"):
        running.fork(
            lambda parent: ["x" * zygote.LONGEST],
            stdin=stdin,
            messages=stdin.fileno(),
            cwd=tmp_path,
            env={},
        )
