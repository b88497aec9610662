"""The descendants of a process."""

import subprocess
import threading
from collections.abc import Iterator

import psutil
import pytest

from compiler.isolation.linux import family


@pytest.fixture
def shell() -> Iterator["subprocess.Popen[str]"]:
    """A shell that waits for two programs, one of them behind another shell."""
    script = "sleep 600 & sh -c 'sleep 600 & echo there; wait' & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        members = psutil.Process(process.pid).children(recursive=True)
        yield process
        for member in members:
            member.kill()


def test_descendants_are_those_whose_parents_lead_there(shell: "subprocess.Popen[str]") -> None:
    root = psutil.Process(shell.pid)
    members = family.descend(root)
    assert len(members) == 3
    assert set(members) == set(root.children(recursive=True))


def test_children_of_other_threads_are_found() -> None:
    started: list[subprocess.Popen[bytes]] = []
    ready, done = threading.Event(), threading.Event()

    def start() -> None:
        started.append(subprocess.Popen(["sleep", "600"]))
        ready.set()
        done.wait()

    thread = threading.Thread(target=start)
    thread.start()
    ready.wait()
    try:
        assert started[0].pid in [one.pid for one in family.descend(psutil.Process())]
    finally:
        started[0].kill()
        started[0].wait()
        done.set()
        thread.join()


def test_a_kernel_without_lists_is_asked_for_all_processes(
    shell: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> list[int]:
        raise FileNotFoundError(pid)

    monkeypatch.setattr(family, "_descend", refuse)
    assert len(family.descend(psutil.Process(shell.pid))) == 3


def test_a_process_that_has_ended_has_no_descendants() -> None:
    with subprocess.Popen(["true"]) as ended:
        process = psutil.Process(ended.pid)
        ended.wait()
    with pytest.raises(psutil.NoSuchProcess):
        family.descend(process)
