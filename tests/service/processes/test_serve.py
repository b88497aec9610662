import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat
from cryptography.x509.oid import NameOID

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


def test_deadlines_are_kept_without_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXD_SWEEP_S", "0.1")
    with serving(tmp_path, "--workers", "0"):
        url = f"http://127.0.0.1:{(tmp_path / 'port').read_text().strip()}"
        form = {"model": ("m.onnx", b"a model")}
        params = {"deadline": "0.2", "wait": "60"}
        job = httpx.post(f"{url}/v1/compile", files=form, params=params, timeout=70).json()
    assert job["state"] == "timed_out"
    assert job["builds"][0]["error"]["code"] == "build.deadline"


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


def _write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    begin = datetime.now(UTC) - timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=30))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "cert.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(Encoding.PEM))
    private.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return chain, private


def test_it_serves_https_with_a_certificate(tmp_path: Path) -> None:
    """Follow docs/howto/run-the-service.md."""
    chain, key = _write_certificate(tmp_path)
    options = ("--workers", "0", "--tls-cert", str(chain), "--tls-key", str(key))
    with serving(tmp_path, *options) as (_, line):
        url = f"https://127.0.0.1:{(tmp_path / 'port').read_text().strip()}"
        assert f"ready at {url}" in line
        trusted = ssl.create_default_context(cafile=chain)
        with httpx.Client(verify=trusted, timeout=60, trust_env=False) as client:
            assert client.get(f"{url}/healthz").json() == {"status": "ok"}
            upload = client.post(f"{url}/v2/relaxd/models/blobs/uploads/")
            assert upload.status_code == 202
        with httpx.Client(timeout=60, trust_env=False) as client, pytest.raises(httpx.ConnectError):
            client.get(f"{url}/healthz")
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as plain:
            plain.settimeout(60)
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" not in plain.recv(1000)


@pytest.mark.parametrize("options", [["--tls-cert"], ["--tls-key"], ["--tls-cert", "--tls-key"]])
def test_a_certificate_that_cannot_be_used_is_said_in_a_sentence(
    tmp_path: Path, options: list[str]
) -> None:
    chain, _ = _write_certificate(tmp_path)
    chosen = [text for option in options for text in (option, str(chain))]
    done = subprocess.run(
        [sys.executable, "-m", "relaxd", "serve", "--data-dir", str(tmp_path / "data"), *chosen],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    says = "cannot use" if len(options) == 2 else "TLS takes a certificate and its key"
    assert says in done.stderr
    assert not (tmp_path / "data").exists()
