"""The registry served for real: container tooling against it, and a server killed in mid-upload."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from artifacts import open_store
from artifacts.oci import IndexEntry, publish_bundle, publish_index
from artifacts.store import CHUNK
from tests.service.api.registry import sha256
from tests.support import plain_http
from tests.support.bundles import fetch

SERVER = """
import sys
from pathlib import Path
import uvicorn
from tests.service.api.registry import create_app
uvicorn.run(create_app(Path(sys.argv[1])), fd=int(sys.argv[2]), log_level="warning")
"""
FILES = {
    "manifest.json": b"{}",
    "model.so": b"\x7fELF library" * 5000,
    "lib/runtime.so": b"runtime",
}
needs_skopeo = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")


@contextmanager
def server(folder: Path, listener: socket.socket):
    """A server process on the listening socket, which outlives it; yields the process, killed at
    the end.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, folder, str(listener.fileno())],
        pass_fds=[listener.fileno()],
        cwd=Path.cwd(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def host(listener):
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def bundle(tmp_path):
    for name, data in FILES.items():
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).write_bytes(data)
    return publish_bundle(
        open_store(tmp_path / "data" / "store").blobs,
        tmp_path / "bundle",
        {"org.relaxd.target": "x86-64-v3"},
    )


def skopeo(*arguments: str) -> str:
    # The listening socket outlives a server that dies: skopeo would wait for an answer for ever.
    command = ["skopeo", "--command-timeout=60s", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_skopeo
def test_skopeo_pulls_a_bundle_and_pushes_it_back(tmp_path, listener, host, bundle):
    name, _, digest = bundle.ref.partition("@")
    with server(tmp_path / "data", listener):
        skopeo(
            "copy",
            "--preserve-digests",
            "--src-tls-verify=false",
            f"docker://{host}/{name}@{digest}",
            f"oci:{tmp_path}/layout:v1",
        )
        blobs = {
            path.name: path.read_bytes()
            for path in (tmp_path / "layout" / "blobs" / "sha256").iterdir()
        }
        assert {sha256(data) for data in FILES.values()} <= {f"sha256:{name}" for name in blobs}
        copy = f"docker://{host}/relaxd/pushed:v1"
        skopeo(
            "copy",
            "--preserve-digests",
            "--dest-tls-verify=false",
            f"oci:{tmp_path}/layout:v1",
            copy,
        )
        assert json.loads(skopeo("inspect", "--raw", "--tls-verify=false", copy)) == json.loads(
            blobs[digest.removeprefix("sha256:")]
        )
        assert json.loads(
            skopeo("list-tags", "--tls-verify=false", f"docker://{host}/relaxd/pushed")
        )["Tags"] == ["v1"]


@needs_skopeo
def test_skopeo_pushes_to_an_empty_registry(tmp_path, listener, host, bundle):
    index = publish_index(
        open_store(tmp_path / "data" / "store").blobs,
        [IndexEntry(bundle.digest, "x86-64-v3", "x86_64", variant="v3")],
    )
    with server(tmp_path / "data", listener):
        skopeo(
            "copy",
            "--all",
            "--preserve-digests",
            "--src-tls-verify=false",
            f"docker://{host}/relaxd/bundles@{index}",
            f"dir:{tmp_path}/dir",
        )
    with socket.create_server(("127.0.0.1", 0)) as other, server(tmp_path / "other", other):
        to = f"docker://127.0.0.1:{other.getsockname()[1]}/relaxd/mirror/deep:latest"
        skopeo(
            "copy",
            "--all",
            "--preserve-digests",
            "--dest-tls-verify=false",
            f"dir:{tmp_path}/dir",
            to,
        )
        mirror = open_store(tmp_path / "other" / "store")
        assert mirror.references.resolve("relaxd/mirror/deep", "latest") == index
        fetch(mirror.blobs, bundle.digest, tmp_path / "out")
        assert (tmp_path / "out" / "model.so").read_bytes() == FILES["model.so"]


def test_an_upload_goes_on_after_the_server_was_killed(tmp_path, listener, host):
    data = bytes(range(256)) * 20_000
    half = len(data) // 2
    with plain_http.Client(base_url=f"http://{host}", timeout=60) as client:
        with server(tmp_path, listener) as process:
            location = client.post("/v2/relaxd/models/blobs/uploads/").headers["Location"]
            client.patch(location, content=data[:half], headers={"Content-Range": f"0-{half - 1}"})
            process.send_signal(signal.SIGKILL)
            process.wait()
        with server(tmp_path, listener):
            assert client.get(location).headers["Range"] == f"0-{half - 1}"
            client.patch(
                location, content=data[half:], headers={"Content-Range": f"{half}-{len(data) - 1}"}
            )
            assert client.put(location, params={"digest": sha256(data)}).status_code == 201
            assert client.get(f"/v2/relaxd/models/blobs/{sha256(data)}").content == data


def test_a_sender_that_breaks_off_can_go_on(tmp_path, listener, host):
    data = bytes(range(256)) * (3 * CHUNK // 256)
    with (
        server(tmp_path, listener),
        plain_http.Client(base_url=f"http://{host}", timeout=60) as client,
    ):
        location = client.post("/v2/relaxd/models/blobs/uploads/").headers["Location"]
        with socket.create_connection(listener.getsockname()) as sender:
            head = (
                f"PATCH {location} HTTP/1.1\r\nHost: {host}\r\nContent-Length: "
                f"{len(data)}\r\nContent-Range: 0-{len(data) - 1}\r\n\r\n"
            )
            sender.sendall(head.encode() + data[: 2 * CHUNK])
            while client.get(location).headers["Range"] == "0-0":
                time.sleep(0.02)
        while (
            answer := client.patch(location, headers={"Content-Range": "0-0"}, content=b"?")
        ).status_code == 429:
            time.sleep(0.02)
        assert answer.status_code == 416
        have = int(answer.headers["Range"].removeprefix("0-")) + 1
        assert CHUNK <= have <= 2 * CHUNK
        client.patch(
            location, content=data[have:], headers={"Content-Range": f"{have}-{len(data) - 1}"}
        )
        assert client.put(location, params={"digest": sha256(data)}).status_code == 201
