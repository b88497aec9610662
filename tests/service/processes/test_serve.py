import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from service.observability.metrics import SHARED
from service.processes.serve import import_path, worker_command
from tests.e2e.deployment import until
from tests.support import plain_http

pytestmark = pytest.mark.slow


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`relaxd serve` on a free port, and the line with which it says so."""
    command = [
        sys.executable,
        "-m",
        "relaxd",
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(folder / "data"),
        "--port-file",
        str(folder / "port"),
        *arguments,
    ]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout
            yield process, process.stdout.readline()
        finally:
            process.kill()


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(process.pid).children()
        if "service.workers" in child.cmdline()
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_stops_everything(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path, "--workers", "1") as (process, line):
        port = (tmp_path / "port").read_text().strip()
        assert line.startswith(f"relaxd is ready at http://127.0.0.1:{port} ")
        assert plain_http.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        (worker,) = until(lambda: workers(process), 20, "a worker")
        measured = Path(worker.environ()[SHARED])
        assert measured.is_dir()
        process.send_signal(number)
        assert process.wait(30) == 0
        assert not worker.is_running()
        assert not measured.exists()


def test_a_second_service_does_not_share_the_folder(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "1") as (_, line):
        assert line.startswith("relaxd is ready")
        (tmp_path / "b").mkdir()
        command = [sys.executable, "-m", "relaxd", "serve", "--port", "0", "--data-dir"]
        second = [*command, str(tmp_path / "data")]
        done = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "another relaxd serve uses" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["damaged", "mysql"])
def test_a_database_that_cannot_be_used_is_said_in_a_sentence(tmp_path: Path, kind: str) -> None:
    environment = dict(os.environ)
    if kind == "damaged":
        (tmp_path / "jobs.sqlite").write_bytes(b"no database" * 1000)
    else:
        environment["RELAXD_DATABASE_URL"] = "mysql://u:secret@h/d"
    command = [sys.executable, "-m", "relaxd", "serve", "--port", "0", "--data-dir", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert ("backup" if kind == "damaged" else "mysql://") in done.stderr
    assert "secret" not in done.stderr


def test_a_folder_of_a_packages_name_in_the_working_directory_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service/__init__.py").write_text("raise SystemExit('the wrong package')")
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": import_path()}
    command = [*worker_command(), "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_workers_end_with_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "1") as (process, _):
        (worker,) = until(lambda: workers(process), 20, "a worker")
        port = (tmp_path / "port").read_text().strip()
        until(
            lambda: plain_http.get(f"http://127.0.0.1:{port}/v1/targets").json()["targets"][0][
                "workers"
            ],
            30,
            "the worker's word",
        )
        process.kill()
        process.wait(10)
        until(
            lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE,
            20,
            "the worker's end",
        )


def test_a_taken_port_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "relaxd",
            "serve",
            "--port",
            port,
            "--data-dir",
            str(tmp_path),
        ]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "COLUMNS": "200"},
        )
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("token", "warned"), [(None, True), ("s3cret", False)])
def test_an_open_address_without_a_token_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None, warned: bool
) -> None:
    if token:
        monkeypatch.setenv("RELAXD_TOKEN", token)
    with serving(tmp_path, "--workers", "0", "--host", "0.0.0.0") as (_, line):
        assert line.startswith("relaxd is ready")
    assert ("set RELAXD_TOKEN" in (tmp_path / "log").read_text()) is warned


def test_an_empty_token_is_an_error_that_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "relaxd", "serve", "--port", "0", "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", "RELAXD_TOKEN": ""},
    )
    assert ended.returncode == 1
    assert "RELAXD_TOKEN: the token is empty" in ended.stderr
    assert "Traceback" not in ended.stderr
