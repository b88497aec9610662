"""Processes whose CUDA device is the emulator."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from compiler import targets
from compiler.toolchain import build, zig

DRIVER, RUNTIME = "libcuda.so.1", "libcudart.so.13"
ORDER = "CUDA_EMULATOR_ORDER"
RISING, FALLING = 0, 1
"""Orders in which the threads of a block run until they wait; any other number is a seed."""

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_FLAGS = ("-fPIC", "-O2", "-Wall", "-Werror")
_NVCC = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.cuda_emulator.nvcc import main
raise SystemExit(main(sys.argv[1:]))
"""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Outcome:
    """outputs: one a feed; launches, replays: of kernels, and of captured graphs; complaints: what
    the emulator wrote; error: the exception that ended the process, empty where none did.
    """

    outputs: tuple[Arrays, ...]
    launches: int
    replays: int
    complaints: str
    error: str


def _folders(files: Iterable[Path]) -> Iterable[str]:
    return sorted({str(file.resolve().parent) for file in files})


def environment(folder: Path, order: int = RISING) -> dict[str, str]:
    """The variables of a process that builds for this device and runs on it.

    folder: is to hold what it finds there, and may do so already.
    """
    (folder / "hidden" / "nvidia").mkdir(parents=True, exist_ok=True)
    # A package of that name without a compiler in it comes before NVIDIA's wheels.
    (folder / "hidden" / "nvidia" / "__init__.py").touch()
    for library in _libraries():
        (folder / library.name).unlink(missing_ok=True)
        (folder / library.name).symlink_to(library)
    (folder / "nvcc").write_text(_NVCC.format(python=sys.executable, root=str(_ROOT)))
    (folder / "nvcc").chmod(0o755)
    return {
        **os.environ,
        # A build sees, beside the compiler, what these two name: nvcc's program, and the libraries.
        "PATH": os.pathsep.join((str(folder), str(_ROOT / "tests"), os.environ.get("PATH", ""))),
        "LD_LIBRARY_PATH": os.pathsep.join((str(folder), *_folders(_libraries()))),
        "PYTHONPATH": os.pathsep.join((str(folder / "hidden"), str(_ROOT))),
        ORDER: str(order),
    }


def run(
    model: Path,
    feeds: Sequence[Arrays],
    folder: Path,
    request: Mapping[str, Any],
    order: int = RISING,
) -> Outcome:
    """Build the model in `folder`, unless that was done, and run it on the feeds in turn.

    request: arguments of `compile_model` beside the model and the output.
    """
    variables = environment(folder, order)
    for index, feed in enumerate(feeds):
        np.savez(folder / f"feed-{index}.npz", **dict[str, Any](feed))
    asked = {"model": str(model), "feeds": len(feeds), "request": dict(request)}
    (folder / "asked.json").write_text(json.dumps(asked))
    command = [sys.executable, "-m", "tests.cuda_emulator.inside", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    complaints = "\n".join(x for x in done.stderr.splitlines() if x.startswith("CUDA emulator"))
    if done.returncode:
        return Outcome((), 0, 0, complaints, done.stderr[-4000:] or f"status {done.returncode}")
    reported = json.loads((folder / "told.json").read_text())
    outputs = tuple(dict(np.load(folder / f"outputs-{index}.npz")) for index in range(len(feeds)))
    return Outcome(outputs, reported["launches"], reported["replays"], complaints, "")


def _libraries() -> tuple[Path, Path]:
    """The driver and the runtime, built once for each state of their sources."""
    sources = sorted(path for path in _HERE.iterdir() if path.suffix in (".c", ".h", ".map"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = Path("emulator", build.digest_of((_FLAGS, digest)))
    driver = build.build_once(folder / DRIVER, partial(_link, ("driver.c", "threads.c"), ()))
    script = f"--version-script={_HERE / 'runtime.map'}"
    return driver, build.build_once(
        folder / RUNTIME, partial(_link, ("runtime.c",), (script, str(driver)))
    )


def _link(sources: Sequence[str], arguments: Sequence[str], output: Path) -> None:
    """By the linker alone: its driver would build a C library's parts for a cold cache."""
    triple, units = targets.resolve("x86-64-v2").platform.linker, []
    for name in sources:
        units.append(str(output.with_name(f"{name}.o")))
        zig.compile_with_zig(*_FLAGS, "-c", "-o", units[-1], str(_HERE / name), triple=triple)
    zig.link_elf("-shared", "-soname", output.name, "-o", str(output), *units, *arguments)
