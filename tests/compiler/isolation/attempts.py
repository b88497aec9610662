"""Sets the scene of the attacks, and lets them run on a kernel that lacks layers of the sandbox."""

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.compiler.isolation import refusing
from tests.compiler.isolation.attacks import SECRET
from tests.compiler.isolation.attacks.system import TORCHSCRIPT

KERNELS = ("", "namespaces", "landlock", "seccomp")
"""Lacking no layer, and one each."""
EVERY_LAYER = "namespaces,landlock,seccomp"
WITHOUT_CONTROL = frozenset(
    (
        # Denied to whoever lacks privileges, as a build does: other processes' insides, devices,
        # the kernel.
        *("read_an_environment", "torchscript_reads_an_environment", "read_by_a_handle"),
        *("read_through_the_root_of_another_process", "torchscript_reads_through_another_root"),
        *("torchscript_saves_through_another_root", "open_the_memory_of_a_process"),
        *("read_the_memory_of_a_process", "trace_a_process", "enter_a_namespace"),
        *("make_a_device", "open_a_raw_socket", "mount_a_file_system", "change_the_root"),
        *("load_a_module", "restart_the_machine", "set_a_kernel_parameter"),
        # Denied by a limit of resources, which is no layer.
        "write_a_file_without_end",
        # What tmpfs allows, depends on the kernel.
        "set_an_attribute",
        # Where they succeed, they reach what is not the scene's.
        *("signal_all_processes", "open_a_device"),
    )
)
"""Attacks of which no control shows that they succeed where every layer is lacking."""
SECONDS = 300


@contextmanager
def stage(folder: Path) -> Iterator[dict[str, Any]]:
    """The files, sockets and processes of others that attacks are after, as a spec of a Scene."""
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
    """Undo what the attacks may have changed, and make new folders of a build."""
    outside = Path(scene["outside"])
    (outside / "secret").write_bytes(SECRET)
    (outside / "record").write_bytes(b"record")
    for name in ("inside", "cache"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    (folder / "model.onnx").write_bytes(b"a model")
    own = {"inside": "inside", "cache": "cache", "model": "model.onnx"}
    return {**scene, **{key: str(folder / name) for key, name in own.items()}}


def failed_controls(
    scene: dict[str, Any], folder: Path, attacks: Iterable[str], **options: Any
) -> dict[str, str]:
    """The outcomes of those of the attacks that do not succeed where every layer is lacking, each
    on the scene as it was: their denial elsewhere would prove nothing.
    """
    spec = {**reset(scene, folder), "only": list(attacks), "restore": True, **options}
    result = attempt(EVERY_LAYER, spec)
    assert result["level"] == "none"
    return {name: text for name, text in result["outcomes"].items() if text != "succeeded"}


def attempt(lacking: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The outcomes of the attacks on a kernel that lacks the layers."""
    done = subprocess.run(
        refusing.command(lacking, "-m", "tests.compiler.isolation.attacks", json.dumps(spec)),
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=True,
    )
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results
