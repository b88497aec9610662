"""The overhead of a call beside its computation: of a small perceptron, from C and from Python; and
what it takes to load and bind a model.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.standalone.native import engines_of
from benchmarks.standalone.rounds import contest
from benchmarks.standalone.subjects import NATIVE, Subject

_PROGRAM = Path(__file__).with_name("overhead.c")
_CALLS = 200_000
_STARTS = 11


def from_c(subject: Subject, work: Path) -> float:
    """Seconds of a call, of a program that zig links with the library."""
    bundle = subject.build(work, NATIVE, "standalone").absolute()
    manifest = json.loads((bundle / "manifest.json").read_text())
    program = work / "overhead"
    zig = [sys.executable, "-m", "ziglang", "cc", "-O2", "-include", str(bundle / "model.h")]
    linked = [str(_PROGRAM), str(bundle / manifest["library"]), f"-Wl,-rpath,{bundle}"]
    subprocess.run([*zig, f"-DP={manifest['entry']}", "-o", str(program), *linked], check=True)
    weights = str(bundle / manifest["weights_file"])
    printed = subprocess.check_output([program, weights, str(_CALLS)], text=True)
    return statistics.median(map(float, printed.split())) / 1e9


def from_python(subject: Subject, work: Path, rounds: int) -> dict[str, float]:
    """Seconds of `run` of both backends and of ONNX Runtime, and of `prepared` calls."""
    ours, machine, session = engines_of(subject, work)
    feed = subject.feed(subject.shapes[0])
    calls: dict[str, Any] = {
        "run": lambda: ours.run(feed),
        "prepared": ours.prepared(feed),
        "run on the virtual machine": lambda: machine.run(feed),
        "ONNX Runtime": lambda: session.run(None, feed),
    }
    result = contest(calls, rounds)
    return {name: result.median(name) for name in calls}


_START = """
import sys, time, importlib, numpy as np, relaxd.loader.opening
from pathlib import Path
importlib.import_module(sys.argv[4])
before = time.process_time_ns()
model = relaxd.loader.opening.load(sys.argv[1], threads=1)
loaded = time.process_time_ns()
feed = dict(np.load(sys.argv[2]))
between = time.process_time_ns()
model.run(feed)
first = time.process_time_ns()
model.run(feed)
second = time.process_time_ns()
another = relaxd.loader.opening.load(sys.argv[3], threads=1)
third = time.process_time_ns()
relaxd.loader.bundles.bundle.sha256_of(Path(sys.argv[3], another.manifest.weights_file))
fourth = time.process_time_ns()
weights = fourth - third
print(loaded - before, third - second, weights, (first - between) - (second - first))
"""


@dataclass(frozen=True)
class Start:
    """Seconds of processor time.

    load: what a load takes in a fresh process, its imports aside and the check of every file's
    sha256 included; another: that of an equal bundle in another folder behind it; weights: the
    sha256 of the file of weights alone, which is part of either; first: by how much a first call,
    which binds, is longer than a second.
    """

    load: float
    another: float
    weights: float
    first: float


def starts(subject: Subject, work: Path, flavour: str) -> Start:
    """Medians over fresh processes."""
    import numpy as np

    inputs = work / f"{subject.name}.npz"
    np.savez(inputs, **dict[str, Any](subject.select_inputs(subject.feed(subject.shapes[0]))))
    bundle = subject.build(work, NATIVE, flavour)
    another = work / f"{bundle.name}-another"
    shutil.copytree(bundle, another, dirs_exist_ok=True)
    # A process that loads one backend does not import what the other takes.
    taken = f"relaxd.loader.{'standalone' if flavour == 'standalone' else 'runtime'}"
    command = [sys.executable, "-c", _START, str(bundle), str(inputs), str(another), taken]
    results = [
        [int(word) / 1e9 for word in subprocess.check_output(command, text=True).split()]
        for _ in range(_STARTS)
    ]
    return Start(*map(statistics.median, zip(*results, strict=True)))
