"""Groups of the kernel for builds: made where they may be, and what becomes of a build in one."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler.errors import (
    CompileCrashed,
    CompileError,
    CompileOutOfMemory,
    CompileTooManyProcesses,
)
from compiler.isolation.child import run_child
from compiler.isolation.level import Layer, Level, level_of
from compiler.isolation.linux import cgroups
from compiler.isolation.linux.cgroups import SERVICE, Group, NoGroups, prepare
from compiler.isolation.messages import InspectJob
from compiler.isolation.starting import Limits, arguments


def reason() -> str | None:
    return None if cgroups.parent() else "cgroup v2 with memory and pids is not writable here"


writable = pytest.mark.skipif(reason() is not None, reason=str(reason()))


class Kernel:
    """Stands in for the files of a group: one that holds processes may not have controllers for
    groups below it, and a group is gone with `rmdir` whatever files it shows.
    """

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch, controllers: str) -> None:
        self.top, self.made = top, list[Path]()
        self.limits = dict[str, dict[str, str]]()
        (top / "cgroup.controllers").write_text(controllers)
        (top / "cgroup.subtree_control").write_text("")
        (top / "cgroup.procs").write_text("11\n12\n")
        write, remove = Path.write_text, Path.rmdir

        def write_text(path: Path, text: str) -> int:
            if path.name == "cgroup.subtree_control" and self.processes():
                raise OSError(errno.EBUSY, "in use")
            if path.name == "cgroup.procs":
                left = [pid for pid in self.processes() if pid != text]
                write(top / "cgroup.procs", "\n".join(left))
            else:
                self.limits.setdefault(path.parent.name, {})[path.name] = text
            return write(path, text)

        def rmdir(path: Path) -> None:
            for file in path.iterdir():
                file.unlink()
            remove(path)

        monkeypatch.setattr(Path, "write_text", write_text)
        monkeypatch.setattr(Path, "rmdir", rmdir)

    def processes(self) -> list[str]:
        return (self.top / "cgroup.procs").read_text().split()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch, "cpu memory pids")


def test_a_group_that_may_be_emptied_gets_the_controllers(kernel: Kernel) -> None:
    assert prepare(kernel.top, may_move=True) == kernel.top
    assert kernel.processes() == []
    assert kernel.limits[kernel.top.name]["cgroup.subtree_control"] == "+memory +pids"


def test_a_group_of_others_stays_as_it_is(kernel: Kernel) -> None:
    with pytest.raises(OSError, match="in use"):
        prepare(kernel.top, may_move=False)
    assert kernel.processes() == ["11", "12"]
    assert not (kernel.top / SERVICE).exists()


def test_a_service_that_was_moved_makes_groups_beside_itself(kernel: Kernel) -> None:
    prepare(kernel.top, may_move=True)
    (kernel.top / "cgroup.subtree_control").write_text("memory pids")
    assert prepare(kernel.top / SERVICE, may_move=False) == kernel.top


def test_controllers_that_lack_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(tmp_path, monkeypatch, "cpu pids")
    with pytest.raises(NoGroups, match="no controllers for memory"):
        prepare(tmp_path, may_move=True)


def test_a_group_holds_its_limits(kernel: Kernel) -> None:
    group = cgroups.make(kernel.top, 1 << 30, 64)
    assert kernel.limits[group.path.name] == {
        "memory.max": str(1 << 30),
        "pids.max": "64",
        "memory.oom.group": "1",
        "memory.swap.max": "0",
    }
    group.remove()
    assert not group.path.exists()
    group.remove()  # once more does no harm


def test_what_a_killed_worker_left_is_removed(kernel: Kernel) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left, mine = (kernel.top / f"relaxd-build-{pid}-x" for pid in (gone.pid, os.getpid()))
    left.mkdir()
    mine.mkdir()
    prepare(kernel.top, may_move=True)
    assert (left.exists(), mine.exists()) == (False, True)


def test_where_the_kernel_kills_no_groups_each_process_is_while_all_stand_still(
    tmp_path: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        (tmp_path / "cgroup.procs").write_text(f"{process.pid}\n")
        Group(tmp_path).kill()
        assert process.wait(60) == -9
    assert (tmp_path / "cgroup.freeze").read_text() == "1"
    (tmp_path / "cgroup.kill").write_text("")
    Group(tmp_path).kill()
    assert (tmp_path / "cgroup.kill").read_text() == "1"
    Group(tmp_path / "gone").kill()


def test_limits_of_processes_are_those_of_any_group_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "service" / "worker"
    own.mkdir(parents=True)
    monkeypatch.setattr(cgroups, "_own_group", lambda: (own, False))
    assert not cgroups.limits_processes()
    (own / "pids.max").write_text("max\n")
    assert not cgroups.limits_processes()
    (own.parent / "pids.max").write_text("512\n")
    assert cgroups.limits_processes()


def test_events_are_counted(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    (tmp_path / "pids.events").write_text("max 7\n")
    group = Group(tmp_path)
    assert (group.oom_kills(), group.refused_forks()) == (2, 7)
    assert Group(tmp_path / "gone").oom_kills() == 0


def test_the_compile_process_is_told_its_group() -> None:
    words = arguments(3, 1, Limits(), Path("/group"))
    assert words[words.index("--group") + 1] == "/group"
    assert "--group" not in arguments(3, 1, Limits(), None)


def test_only_a_full_sandbox_in_a_group_is_metered() -> None:
    full = {Layer.SECCOMP, Layer.LIMITS, Layer.NAMESPACES, Layer.LANDLOCK}
    assert level_of(full) is Level.FULL
    assert level_of({*full, Layer.GROUP}) is Level.METERED
    assert level_of({*full, Layer.GROUP} - {Layer.NAMESPACES}) is Level.FILESYSTEM
    assert level_of({Layer.GROUP}) is Level.NONE
    assert Level.METERED.isolates_files


DYING = """
import os, signal, sys
from pathlib import Path
group = Path(sys.argv[sys.argv.index("--group") + 1])
(group / "EVENTS").write_text("EVENT 1")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("events", "event", "error"),
    [
        ("memory.events", "oom_kill", CompileOutOfMemory),
        ("pids.events", "max", CompileTooManyProcesses),
        ("memory.events", "low", CompileCrashed),
    ],
)
def test_a_process_that_its_group_ended_failed_for_that(
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    events: str,
    event: str,
    error: type[CompileError],
) -> None:
    monkeypatch.setattr(cgroups, "parent", lambda: kernel.top)
    program = DYING.replace("EVENTS", events).replace("EVENT", event)
    with pytest.raises(error):
        run_child(InspectJob("model", {}), command=(sys.executable, "-c", program))
    assert list(kernel.top.glob("relaxd-build-*")) == []


JOIN = """
import sys
from pathlib import Path
from compiler.isolation.linux import cgroups
cgroups.join(Path(sys.argv[1]))
"""


def run_confined(program: str, memory_bytes: int, processes: int) -> tuple[int, Group]:
    above = cgroups.parent()
    assert above
    group = cgroups.make(above, memory_bytes, processes)
    command = [sys.executable, "-c", JOIN + program, str(group.path)]
    return subprocess.run(command, cwd=Path(__file__).parents[4], check=False).returncode, group


@writable
def test_memory_beyond_the_limit_ends_the_group() -> None:
    status, group = run_confined("x = bytearray(300 << 20)", 100 << 20, 64)
    kills = group.oom_kills()
    group.remove()
    assert (status, kills > 0) == (-9, True)


@writable
def test_processes_beyond_the_limit_are_refused() -> None:
    program = "import os, time\nfor _ in range(99):\n    os.fork() or time.sleep(3)\n"
    status, group = run_confined(program, 1 << 30, 8)
    refused = group.refused_forks()
    group.kill()
    group.remove()
    assert (status != 0, refused > 0) == (True, True)


@writable
def test_whatever_left_its_session_ends_with_the_group() -> None:
    program = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    time.sleep(99)"
    )
    _, group = run_confined(program, 1 << 30, 64)
    group.kill()
    until = time.monotonic() + 10
    while (group.path / "cgroup.procs").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    group.remove()
    assert not group.path.exists()
