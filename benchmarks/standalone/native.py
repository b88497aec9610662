"""On this machine's processor: library sizes, and calls of both backends and of peers in turns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.standalone.rounds import contest
from benchmarks.standalone.subjects import NATIVE, Dims, Subject, label

_NEAR = 1e-3


@dataclass(frozen=True)
class NativeRow:
    """Seconds of a call, and ratios of the library that needs no runtime by the others."""

    where: str
    standalone: float
    by_machine: float
    by_onnxruntime: float


def sizes(subject: Subject, work: Path) -> tuple[int, int]:
    """Bytes of `model.so` without a runtime, and on the virtual machine."""
    first, second = (
        (subject.build(work, NATIVE, flavour) / "model.so").stat().st_size
        for flavour in ("standalone", "vm")
    )
    return first, second


def rows(subject: Subject, work: Path, rounds: int) -> list[NativeRow]:
    """One for each of the subject's shapes; raises AssertionError where results differ."""
    engines = engines_of(subject, work)
    return [_row(subject, dims, engines, rounds) for dims in subject.shapes]


def engines_of(subject: Subject, work: Path) -> tuple[Any, Any, Any]:
    """The bundles of both backends and a session of ONNX Runtime, on one thread each."""
    import onnxruntime

    import relaxd

    onnxruntime.disable_telemetry_events()
    ours, machine = (
        relaxd.load(subject.build(work, NATIVE, flavour), threads=1)
        for flavour in ("standalone", "vm")
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(subject.file(work)), options)
    return ours, machine, session


def _row(subject: Subject, dims: Dims, engines: tuple[Any, Any, Any], rounds: int) -> NativeRow:
    ours, machine, session = engines
    full = subject.feed(dims)
    feed = subject.select_inputs(full)
    want = session.run(None, full)
    for model in (ours, machine):
        compare(list(model.run(feed).values()), want)
    result = contest(
        {
            "standalone": lambda: ours.run(feed),
            "vm": lambda: machine.run(feed),
            "onnxruntime": lambda: session.run(None, full),
        },
        rounds,
    )
    return NativeRow(
        label(subject, dims),
        result.median("standalone"),
        result.ratio("standalone", "vm"),
        result.ratio("standalone", "onnxruntime"),
    )


def compare(outputs: list[Any], wanted: list[Any]) -> None:
    """Raises AssertionError where outputs differ by more than a thousandth of their range."""
    for output, want in zip(outputs, wanted, strict=True):
        bound = _NEAR * max(float(np.abs(want).max(initial=0)), 1e-6)
        np.testing.assert_allclose(output, want, rtol=0, atol=bound)
