"""The child's side, in processes of its own: what is given up cannot be had back."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from compiler.isolation import sandbox
from compiler.isolation.linux import cgroups, namespaces
from tests.compiler.isolation import refusing

PRELUDE = """
import json, os, resource, signal, subprocess, sys, time
from pathlib import Path
from compiler.isolation import sandbox
from compiler.isolation.linux.visible_paths import find_paths
from compiler.isolation.linux.privileges import Shares
inside = Path(sys.argv[2])
(inside / "spare").mkdir()
parent = int(sys.argv[1]) or os.getppid()
shares = Shares(1 << 32, 1 << 20)
held = sandbox.confine(parent, find_paths((), (inside,)), shares, inside / "spare")
os.chdir(inside)
"""
KERNELS = ("", "namespaces", "landlock", "namespaces,landlock")


def run(script: str, folder: Path, lacking: str = "", parent: int = 0) -> subprocess.Popen[str]:
    command = refusing.command(lacking, "-c", PRELUDE + script, str(parent), str(folder))
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_confined(script: str, folder: Path, lacking: str = "", parent: int = 0) -> str:
    with run(script, folder, lacking, parent) as process:
        out, errors = process.communicate(timeout=60)
    assert not process.returncode, errors
    return out.strip()


def soon(condition: object) -> bool:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def running(token: str) -> list[psutil.Process]:
    """Processes with the token as an argument."""
    processes = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if token in (process.info["cmdline"] or ()):
            processes.append(process)
    return [item for item in processes if item.info["status"] != psutil.STATUS_ZOMBIE]


ROOT = namespaces.is_root() and not cgroups.limits_processes()
"""True where the kernel takes any number of processes from the user of these tests."""
LEVELS = ("full", "filesystem", "filesystem", "limits")


@pytest.mark.parametrize(("lacking", "level"), list(zip(KERNELS, LEVELS, strict=True)))
def test_the_level_follows_from_what_the_kernel_has(
    tmp_path: Path, lacking: str, level: str
) -> None:
    assert run_confined("print(held.level.value)", tmp_path, lacking) == level


STORM = """
shares, started = resource.getrlimit(resource.RLIMIT_NPROC)[0], 0
resource.setrlimit(resource.RLIMIT_NPROC, (20, 20))
try:
    while started < 100:
        if not os.fork():
            time.sleep(600)
        started += 1
except BlockingIOError:
    pass
Path("result").write_text("x")
print(json.dumps([started, held.unlimited, shares]))
"""


@pytest.mark.skipif(not ROOT, reason="the kernel limits the processes of this user by itself")
@pytest.mark.parametrize("lacking", ["", "landlock"])
def test_processes_of_root_are_limited_by_the_kernel_too(tmp_path: Path, lacking: str) -> None:
    """They are those of a user whom nothing else on the machine has."""
    started, unlimited, shares = json.loads(run_confined(STORM, tmp_path, lacking))
    assert (started, unlimited) == (20 - 1, False)
    assert shares <= 1024 + 1, "no other process counts"
    assert (tmp_path / "result").stat().st_uid > 0x70000000


@pytest.mark.skipif(not ROOT, reason="the kernel limits the processes of this user by itself")
def test_without_namespaces_the_log_says_that_processes_are_not_limited(tmp_path: Path) -> None:
    script = "print(json.dumps([held.unlimited, held.remarks]))"
    unlimited, remarks = json.loads(run_confined(script, tmp_path, "namespaces"))
    assert unlimited is True
    assert any("how many processes root has" in remark for remark in remarks)


@pytest.mark.parametrize("lacking", KERNELS)
def test_privileges_and_limits_are_gone(tmp_path: Path, lacking: str) -> None:
    status = run_confined("print(open('/proc/self/status').read())", tmp_path, lacking)
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert {int(lines[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}


def test_limits_hold(tmp_path: Path) -> None:
    limits = run_confined(
        "print(json.dumps([resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[1] "
        "for name in ('CORE', 'FSIZE', 'DATA')]))",
        tmp_path,
    )
    assert json.loads(limits) == [0, 1 << 20, 1 << 32]


def test_it_goes_first_when_memory_runs_out(tmp_path: Path) -> None:
    assert run_confined("print(open('/proc/self/oom_score_adj').read())", tmp_path) == "1000"


@pytest.mark.parametrize("lacking", KERNELS)
def test_its_own_files_stay_readable_and_writable(tmp_path: Path, lacking: str) -> None:
    script = """
Path("folder").mkdir()
Path("file").write_text("x")
Path("file").rename("folder/file")
Path("folder/link").symlink_to("file")
print(Path("folder/link").read_text(), os.getuid())
"""
    assert run_confined(script, tmp_path, lacking) == f"x {os.getuid()}"


@pytest.mark.parametrize("lacking", KERNELS)
def test_it_ends_as_the_confined_process_ends(tmp_path: Path, lacking: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with run("sys.exit(7)", tmp_path / "a", lacking) as process:
        assert process.wait(60) == 7
    with run("os.kill(os.getpid(), signal.SIGSEGV)", tmp_path / "b", lacking) as process:
        assert process.wait(60) == -11


def test_a_guardian_that_is_late_finds_what_it_has_open(tmp_path: Path) -> None:
    """The confined process replaces the root of both, at whatever time."""
    late = """
import time
from compiler.isolation import guardian
def slow(*arguments, let_go=guardian._let_go, **named):
    time.sleep(0.5)
    let_go(*arguments, **named)
guardian._let_go = slow
"""
    command = [sys.executable, "-c", late + PRELUDE + "sys.exit(7)", "0", str(tmp_path)]
    assert subprocess.run(command, timeout=60, check=False).returncode == 7


SURVIVOR = """
token = sys.argv[2]
if not os.fork():
    os.setsid()
    if not os.fork():
        nothing = os.open("/dev/null", os.O_RDWR)
        [os.dup2(nothing, number) for number in range(3)]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", token])
    os._exit(0)
time.sleep(1)
print("ready", flush=True)
"""


@pytest.mark.parametrize("lacking", KERNELS)
@pytest.mark.parametrize("end", ["by itself", "asked", "killed"])
def test_a_process_that_moved_away_ends_too(tmp_path: Path, lacking: str, end: str) -> None:
    if end == "killed" and "namespaces" in lacking:
        pytest.skip("without a namespace of processes somebody has to look for them")
    script = SURVIVOR + ("" if end == "by itself" else "time.sleep(600)\n")
    with run(script, tmp_path, lacking) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if end != "by itself":
            assert running(str(tmp_path))
            process.send_signal(signal.SIGTERM if end == "asked" else signal.SIGKILL)
        process.wait(60)
        assert soon(lambda: not running(str(tmp_path)))


def test_an_orphan_does_not_start(tmp_path: Path) -> None:
    with run("", tmp_path, parent=1 if os.getpid() != 1 else 2) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode
    assert sandbox.ParentDied.__name__ in errors


def test_a_task_writes_to_its_own_folder_alone(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from compiler.isolation import sandbox
folder = Path(sys.argv[1])
(folder / "task").mkdir()
sandbox.confine_further((folder / "task",))
(folder / "task" / "mine").write_text("x")
try:
    (folder / "bundle").write_text("x")
except PermissionError:
    print("denied", os.listdir(folder))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "denied ['task']\n"


def test_a_task_goes_on_where_system_calls_cannot_be_filtered(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from compiler.isolation import sandbox
folder = Path(sys.argv[1])
(folder / "task").mkdir()
sandbox.confine_further((folder / "task",))
try:
    (folder / "bundle").write_text("x")
except PermissionError:
    print("denied")
"""
    command = refusing.command("seccomp", "-c", script, str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    remark, denied = done.stdout.splitlines()
    assert remark.startswith("sandbox: system calls: ")
    assert denied == "denied"


def test_hidden_memory_is_no_file_of_others() -> None:
    script = """
from compiler.isolation.linux import kernel, privileges
privileges.hide_memory()
print(kernel.prctl(3))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "0\n"
