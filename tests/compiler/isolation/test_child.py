"""The parent's side, with children that do on purpose what a compiler does by accident."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from compiler.errors import (
    CompileCancelled,
    CompileCrashed,
    CompileDiskFull,
    CompileError,
    CompileOutOfMemory,
    CompileTimeout,
    CompileTooManyProcesses,
    VerifyError,
)
from compiler.isolation.child import run_child
from compiler.isolation.linux import cgroups, namespaces
from compiler.isolation.messages import CompileJob, Event, InspectJob, Log, Progress, StageStarted
from compiler.isolation.output import partial_of
from compiler.isolation.starting import Limits
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage
from tests.compiler.isolation import refusing

PRELUDE = """
import json, os, signal, subprocess, sys, time
fd = int(sys.argv[sys.argv.index("--messages") + 1])
job = json.load(sys.stdin)
def say(**document):
    os.write(fd, (json.dumps(document) + "\\n").encode())
def succeed(**result):
    say(kind="succeeded", result=result)
"""
JOB = InspectJob("model.onnx", {"dims": {}})


def child(script: str) -> list[str]:
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(script)]


def run(script: str, job: Any = JOB, **settings: Any) -> tuple[Any, list[Event]]:
    events: list[Event] = []
    return run_child(job, command=child(script), on_event=events.append, **settings), events


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def soon(condition: Any, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_the_job_goes_in_and_the_result_comes_out() -> None:
    result, _ = run("succeed(job=job)")
    assert result == {"job": JOB.to_json()}


def test_events_arrive_in_order() -> None:
    _, events = run("""
        say(kind="stage", stage="import")
        counts = {"done": 1, "total": 2, "seconds_left": None}
        say(kind="progress", stage="import", message="half", **counts)
        say(kind="stage", stage="link")
        succeed()
    """)
    assert events == [
        StageStarted(Stage.IMPORT),
        Progress(Stage.IMPORT, "half", 1, 2),
        StageStarted(Stage.LINK),
    ]


def test_what_the_child_prints_is_log() -> None:
    _, events = run(
        "print('out', flush=True); print('err', file=sys.stderr); sys.stdout.write('no newline'); "
        "sys.stdout.flush(); succeed()"
    )
    assert events == [Log("out"), Log("err"), Log("no newline")]


def test_a_flood_of_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.isolation.child._LOG_LINES", 5)
    _, events = run(
        "print('x' * 100_000); [print(i) for i in range(1000)]; sys.stdout.flush(); succeed()"
    )
    assert len(events) == 6
    assert isinstance(events[0], Log)
    assert len(events[0].line) == 4096


def test_a_large_result_is_whole() -> None:
    result, _ = run("succeed(text='y' * 5_000_000)")
    assert len(result["text"]) == 5_000_000


def test_failure_fields_survive_the_trip() -> None:
    failure = Failure(
        "verify.mismatch",
        Stage.VERIFY,
        "off",
        "Fuse",
        "n",
        "Add",
        "h",
        "f",
        retryable=True,
        details={"max_abs": 0.5},
    )
    with pytest.raises(VerifyError) as caught:
        run(f"say(kind='failed', failure=json.loads({json.dumps(failure.to_json())!r}))")
    assert caught.value.failure == failure


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
def test_death_by_signal(name: str) -> None:
    with pytest.raises(CompileCrashed, match=name) as caught:
        run(
            "say(kind='stage', stage='codegen'); print('last words', flush=True); "
            f"os.kill(os.getpid(), signal.{name})"
        )
    failure = caught.value.failure
    assert (failure.code, failure.stage) == ("compile.crashed", Stage.CODEGEN)
    assert failure.details["signal"] == name
    assert failure.details["log"] == ["last words"]


@pytest.mark.parametrize(
    ("end", "limits"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", Limits()),
        ("sys.exit(1)", Limits()),
        ("time.sleep(600)", Limits(seconds=3)),
    ],
)
def test_a_failure_told_before_the_end_is_the_result(end: str, limits: Limits) -> None:
    failure = json.dumps(Failure("verify.mismatch", Stage.VERIFY, "off").to_json())
    with pytest.raises(VerifyError, match="off") as caught:
        run(f"say(kind='failing', failure=json.loads({failure!r})); {end}", limits=limits)
    assert caught.value.code == "verify.mismatch"


def test_a_cancelled_search_is_a_cancelled_build() -> None:
    failure = json.dumps(Failure("verify.mismatch", Stage.VERIFY, "off").to_json())
    with pytest.raises(CompileCancelled):
        run(
            f"say(kind='failing', failure=json.loads({failure!r})); time.sleep(600)",
            cancelled=lambda: True,
        )


def test_an_end_without_result() -> None:
    with pytest.raises(CompileCrashed, match="status 7") as caught:
        run("sys.exit(7)")
    assert caught.value.failure.details["exit_status"] == 7


@pytest.mark.parametrize("line", ["not json", '{"kind": "song"}', "[1]"])
def test_nonsense_instead_of_messages(line: str) -> None:
    with pytest.raises(CompileCrashed, match="sent no message"):
        run(f"os.write(fd, {line!r}.encode() + b'\\n'); time.sleep(60)")


def test_the_time_limit() -> None:
    with pytest.raises(CompileTimeout) as caught:
        run("say(kind='stage', stage='pass'); time.sleep(60)", limits=Limits(seconds=0.5))
    assert (caught.value.code, caught.value.failure.stage) == ("compile.timeout", Stage.PASS)


def test_the_memory_limit_counts_every_process(tmp_path: Path) -> None:
    hog = "import time; x = bytearray(60 << 20); time.sleep(60)"
    with pytest.raises(CompileOutOfMemory) as caught:
        run(
            f"[subprocess.Popen([sys.executable, '-c', {hog!r}]) for _ in range(3)]; "
            "time.sleep(60)",
            limits=Limits(memory_bytes=150 << 20),
        )
    assert caught.value.code == "compile.out_of_memory"
    assert caught.value.failure.details["limit_bytes"] == 150 << 20


def test_cancelling_kills_the_grandchildren_too(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"""
        sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
        lost = subprocess.Popen(["sleep", "60"], start_new_session=True)
        open({str(pids)!r} + ".new", "w").write(" ".join(str(p.pid) for p in [*sleepers, lost]))
        os.rename({str(pids)!r} + ".new", {str(pids)!r})
        time.sleep(60)
    """
    with pytest.raises(CompileCancelled):
        run(script, cancelled=pids.exists)
    assert soon(lambda: all(has_ended(int(pid)) for pid in pids.read_text().split()))


def test_an_error_in_a_callback_kills_the_child(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def fail(event: Event) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        run_child(
            JOB,
            command=child(
                f"open({str(pid)!r}, 'w').write(str(os.getpid())); print('x', flush=True); "
                "time.sleep(60)"
            ),
            on_event=fail,
        )
    assert has_ended(int(pid.read_text()))


def test_a_child_that_lingers_after_its_result_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.isolation.child._GRACE_SECONDS", 0.3)
    result, _ = run("succeed(pid=os.getpid()); time.sleep(60)")
    assert has_ended(result["pid"])


def test_the_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXD_TOKEN", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    result, _ = run("succeed(environment=dict(os.environ), folder=os.getcwd())")
    assert "secret" not in result["environment"].values()
    assert result["environment"]["HOME"] == result["environment"]["TMPDIR"] == result["folder"]


def test_no_file_descriptor_leaks_into_the_child() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        result, _ = run("succeed(open=sorted(int(x) for x in os.listdir('/proc/self/fd')), fd=fd)")
    finally:
        os.close(reader)
        os.close(writer)
    assert writer not in set(result["open"]) - {result["fd"]} or writer == result["fd"]
    assert result["fd"] in result["open"]


def test_the_private_folder_is_removed() -> None:
    result, _ = run("open('left', 'w').write('x'); succeed(folder=os.getcwd())")
    assert not Path(result["folder"]).exists()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGSEGV)", "time.sleep(60)"])
def test_a_partial_bundle_is_removed(tmp_path: Path, end: str) -> None:
    job = CompileJob("m.onnx", {}, "native", str(tmp_path / "out"), "m")
    partial = partial_of(job)
    with pytest.raises(CompileError):
        run(
            f"open({str(partial / 'model.so')!r}, 'w').close(); {end}",
            job=job,
            limits=Limits(seconds=1),
        )
    assert list(tmp_path.iterdir()) == []


def test_the_real_child_dies_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed with SIGKILL, which leaves it no chance to clean up."""
    fifo = tmp_path / "model.onnx"
    os.mkfifo(fifo)
    script = f"""
from compiler.isolation.messages import InspectJob
from compiler.isolation.child import run_child
run_child(InspectJob({str(fifo)!r}, {{}}), on_event=lambda event: print(event, flush=True))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert "load" in parent.stdout.readline()
        (compiler,) = psutil.Process(parent.pid).children()
        parent.send_signal(signal.SIGKILL)
    assert soon(lambda: has_ended(compiler.pid))


def test_a_filler_of_disks_is_ended() -> None:
    with pytest.raises(CompileDiskFull) as caught:
        run(
            "[open(str(i), 'wb').write(bytes(1 << 20)) for i in range(64)]; time.sleep(60)",
            limits=Limits(disk_bytes=32 << 20),
        )
    assert caught.value.code == "compile.disk_full"


def test_a_fork_bomb_is_ended() -> None:
    with pytest.raises(CompileTooManyProcesses) as caught:
        run(
            "[subprocess.Popen(['sleep', '60']) for _ in range(40)]; time.sleep(60)",
            limits=Limits(processes=20),
        )
    assert caught.value.code == "compile.too_many_processes"


HYDRA = """
count = os.open("count", os.O_RDWR | os.O_CREAT | os.O_APPEND)
def start():
    # Each leaves a byte, so that there are no more than so many, whatever goes wrong.
    if os.write(count, b"x") and os.fstat(count).st_size < 150 and not os.fork():
        os.setsid()
        watch(os.getppid())
def watch(other):
    while True:
        try:
            os.kill(other, 0)
            if open(f"/proc/{other}/stat").read().rpartition(")")[2].split()[0] in "ZX":
                raise ProcessLookupError
        except (ProcessLookupError, FileNotFoundError):
            start()
            other = os.getppid()
first = os.getpid()
for _ in range(6):
    if not os.fork():
        os.setsid()
        start()
        watch(first)
time.sleep(60)
"""


def hydra() -> list[psutil.Process]:
    processes = psutil.process_iter(["cmdline"])
    return [one for one in processes if HYDRA in " ".join(one.info["cmdline"] or ())]


def test_processes_that_follow_each_other_stand_still_before_they_end() -> None:
    """Each starts another one when one of them ends, in a session of its own."""
    with pytest.raises(CompileCancelled):
        run_child(JOB, command=child(HYDRA), cancelled=lambda: len(hydra()) > 12)
    time.sleep(1)
    left = hydra()
    for process in left:
        process.kill()
    assert left == []


HOSTILE = ("reads", "overwrites")


@pytest.fixture(scope="module")
def hostile_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with TorchScript models that attack the files beside it, `secret` and `record`."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_bytes(b"the secret")
    (outside / "record").write_bytes(b"record")
    models = outside / "models"
    models.mkdir()
    hostile = "tests.compiler.isolation.hostile"
    command = [sys.executable, "-W", "ignore", "-m", hostile]
    subprocess.run([*command, str(models), str(outside), "1", *HOSTILE], check=True)
    return models


@pytest.mark.parametrize("lacking", ["namespaces", "namespaces,landlock", "landlock", ""])
def test_torchscript_runs_only_where_files_are_isolated(hostile_models: Path, lacking: str) -> None:
    """Models that read a secret or write a record when they are loaded, in whole compile processes;
    `test_attacks` has both on kernels that lack one layer each, without the rest of a process.
    """
    script = """
import sys
from compiler.errors import CompileError
from compiler.isolation import zygote
from compiler.isolation.child import run_child
from compiler.isolation.messages import InspectJob
from relaxd.contract.request import CompileRequest
request = CompileRequest.of(inputs={"x": "float32[n]"}).to_json()
with zygote.keep_zygote():
    for model in sys.argv[1:]:
        try:
            run_child(InspectJob(model, request))
            print("loaded")
        except CompileError as error:
            print(error.code)
"""
    unlimited = namespaces.is_root() and not cgroups.limits_processes()
    refused = lacking == "namespaces,landlock" or (lacking == "namespaces" and unlimited)
    # Each that is not refused imports torch.
    names = HOSTILE if refused or not lacking else HOSTILE[:1]
    models = [str(hostile_models / f"{name}.pt") for name in names]
    done = subprocess.run(
        refusing.command(lacking, "-c", script, *models),
        capture_output=True,
        text=True,
        check=True,
    )
    code = "load.sandbox_too_weak" if refused else "load.not_torchscript"
    assert done.stdout.split() == [code] * len(models)
    assert (hostile_models.parent / "record").read_bytes() == b"record"
