"""Every attack is denied, and still is where the kernel lacks any one layer of the sandbox."""

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from compiler.isolation.level import Layer, level_of
from tests.compiler.isolation import refusing
from tests.compiler.isolation.attacks import ATTACKS, SECRET
from tests.compiler.isolation.attacks.system import SURFACE, TORCHSCRIPT

pytestmark = pytest.mark.slow

KERNELS = ("", "namespaces", "landlock", "seccomp")
ONLY_SECCOMP = {f"reach_{name}" for name, *_ in SURFACE}
SHARED_BY_FILES = {"run_a_program_of_its_own": "landlock"}
"""Denied by one layer alone, which is named: it gains nothing that Python has not."""
SECONDS = 300


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("attacks")
    outside, models = folder / "outside", folder / "models"
    outside.mkdir()
    models.mkdir()
    with ExitStack() as stack:
        victim = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", "import signal; signal.pause()"],
                env={"SECRET": SECRET.decode()},
            )
        )
        stack.callback(victim.kill)
        abstract = f"relaxd-{uuid.uuid4()}"
        sockets = {
            name: stack.enter_context(socket.socket(family, kind))
            for name, family, kind in (
                ("tcp", socket.AF_INET, socket.SOCK_STREAM),
                ("udp", socket.AF_INET, socket.SOCK_DGRAM),
                ("stream", socket.AF_UNIX, socket.SOCK_STREAM),
                ("datagrams", socket.AF_UNIX, socket.SOCK_DGRAM),
                ("abstract", socket.AF_UNIX, socket.SOCK_STREAM),
            )
        }
        for name in ("tcp", "udp"):
            sockets[name].bind(("127.0.0.1", 0))
        for name in ("stream", "datagrams"):
            # Relative: the path of a socket is short.
            here = os.getcwd()
            os.chdir(outside)
            sockets[name].bind(name)
            os.chdir(here)
        sockets["abstract"].bind("\0" + abstract)
        for name in ("tcp", "stream", "abstract"):
            sockets[name].listen()
        subprocess.run(
            [
                *(sys.executable, "-W", "ignore", "-m", "tests.compiler.isolation.hostile"),
                *(str(models), str(outside), str(victim.pid)),
            ],
            check=True,
        )
        yield {
            "outside": str(outside),
            "victim": victim.pid,
            "tcp": sockets["tcp"].getsockname()[1],
            "udp": sockets["udp"].getsockname()[1],
            "abstract": abstract,
            "models": {name: str(models / f"{name}.pt") for name in TORCHSCRIPT},
        }


def reset(scene: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the attacks may have changed, as it was; and new folders of a build."""
    outside = Path(scene["outside"])
    (outside / "secret").write_bytes(SECRET)
    (outside / "record").write_bytes(b"record")
    for name in ("inside", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    (folder / "model.onnx").write_bytes(b"a model")
    own = {"inside": "inside", "cache": "cache", "model": "model.onnx"}
    return {**scene, **{key: str(folder / name) for key, name in own.items()}}


def attempt(lacking: str, spec: dict[str, Any]) -> dict[str, Any]:
    """What the attacks came to on a kernel that lacks the layers."""
    done = subprocess.run(
        refusing.command(lacking, "-m", "tests.compiler.isolation.attacks", json.dumps(spec)),
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="session")
def found(
    scene: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What every attack came to, by the layers that the kernel lacks."""
    results: dict[str, dict[str, Any]] = {}
    for lacking in KERNELS:
        results[lacking] = attempt(lacking, reset(scene, tmp_path_factory.mktemp("build")))
        if len(results[""]["layers"]) < len(Layer):
            pytest.skip(f"this kernel has {', '.join(results['']['layers'])} alone")
        outside = Path(scene["outside"])
        results[lacking]["left"] = {
            path.name: path.read_bytes() for path in outside.iterdir() if path.is_file()
        }
    return results


@pytest.mark.parametrize("lacking", KERNELS)
def test_the_kernel_has_the_layers_but_the_lacking_one(found: dict[str, Any], lacking: str) -> None:
    layers = {Layer(name) for name in found[lacking]["layers"]}
    expected = {layer for layer in Layer if not layer.value.startswith(lacking or "-")}
    assert layers == expected
    assert level_of(layers) == found[lacking]["level"]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("lacking", KERNELS)
def test_it_is_denied(found: dict[str, Any], lacking: str, attack: str) -> None:
    if lacking == "seccomp" and attack in ONLY_SECCOMP:
        pytest.skip("a way into the kernel that seccomp alone closes, and that leads to no file")
    if SHARED_BY_FILES.get(attack) == lacking and lacking:
        pytest.skip("one layer's alone")
    assert found[lacking]["outcomes"][attack] != "succeeded"


# An environment is not among them: a process without capabilities reads none of root's.
CONTROL = (
    *("read_a_secret", "create_a_file", "read_through_a_hard_link", "overwrite_a_record"),
    *("signal_a_process", "connect_by_tcp", "connect_to_a_socket_file"),
    *("connect_to_an_abstract_socket", "send_from_a_pair_to_a_socket_file", "send_by_udp"),
    *("poison_the_linkers_cache", "reopen_a_descriptor_for_writing"),
    *(f"torchscript_{name}" for name in TORCHSCRIPT if name != "reads_an_environment"),
    "delete_a_record",
)


def test_attacks_succeed_where_every_layer_is_lacking(
    scene: dict[str, Any], tmp_path: Path, found: dict[str, Any]
) -> None:
    spec = {**reset(scene, tmp_path), "only": CONTROL}
    result = attempt("namespaces,landlock,seccomp", spec)
    assert result["level"] == "none"
    assert {name for name, said in result["outcomes"].items() if said != "succeeded"} == set()


@pytest.mark.parametrize("lacking", KERNELS)
def test_the_files_of_others_are_as_they_were(found: dict[str, Any], lacking: str) -> None:
    assert found[lacking]["left"] == {"secret": SECRET, "record": b"record"}
