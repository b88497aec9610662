import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.images.compose import Service
from tools.images.container import Container, Spec

SERVICE = Service(
    name="one",
    image="one",
    dockerfile=None,
    user="65534:65534",
    command=None,
    environment={},
    tmpfs={"/tmp": "size=1m"},
    volumes={"/kept": "kept"},
    memory=1 << 30,
    pids=64,
    after=(),
    health=None,
    grace=10.0,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user reaches, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def spec(folder: Path) -> Spec:
    retained, hosts = folder / "kept", folder / "hosts"
    retained.mkdir()
    hosts.write_text("127.0.0.1 one\n")
    usr = ("--ro-bind", "/usr", "/usr", "--dir", "/etc")
    links = [
        word
        for name in ("bin", "lib", "lib64")
        for word in ("--symlink", f"usr/{name}", f"/{name}")
    ]
    return Spec(
        SERVICE, (65534, 65534), (*usr, *links), {"/kept": retained}, {"NAME": "value"}, hosts
    )


def test_a_container_has_what_the_service_says_and_no_more(spec: Spec) -> None:
    command = spec.command(["true"])
    text = " ".join(command)
    assert command[0] == "setpriv"
    assert "--reuid=65534 --regid=65534 --clear-groups" in text
    assert "--bounding-set=-all --no-new-privs" in text
    assert "--clearenv" in command
    assert "--setenv NAME value" in text
    assert f"--bind {spec.volumes['/kept']} /kept" in text
    assert text.index("--tmpfs /tmp") < text.index("--remount-ro /") < text.index("-- true")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_the_root_is_read_only_and_a_service_is_asked_to_end(spec: Spec, folder: Path) -> None:
    log = folder / "container.log"
    script = 'touch /new; trap "echo asked; exit 0" TERM; echo "$NAME"; sleep 100 & wait'
    container = Container(spec, ["sh", "-c", script], log)
    try:
        deadline = time.monotonic() + 30
        while "value" not in (text := log.read_text()) and container.alive():
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        if not container.alive() and text.startswith(("bwrap", "setpriv")):
            pytest.skip(f"no container can be started here: {text}")
        assert "Read-only file system" in text
        assert container.stop()
    finally:
        container.process.kill()
        container.process.wait()
        container.release()
    assert "asked" in log.read_text()
