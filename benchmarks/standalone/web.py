"""WebAssembly: modules beside onnxruntime-web, one thread each, and what a second thread gains."""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.standalone.hosts import HOSTS
from benchmarks.standalone.subjects import WEB, WEB_THREADS, Dims, Subject, label


@dataclass(frozen=True)
class WebRow:
    """Seconds of a call, and the median of each round's ratio to onnxruntime-web; None without."""

    where: str
    seconds: float
    by_peer: float | None


@dataclass(frozen=True)
class ThreadRow:
    """Seconds of a call with two threads by the clock, and the median of each round's ratio of one
    thread to two; of onnxruntime-web the seconds with one thread and with two, None without.
    """

    where: str
    two: float
    gain: float
    peer_one: float | None = None
    peer_two: float | None = None


def sizes(subject: Subject, work: Path) -> tuple[int, int]:
    """Bytes of the module, and after gzip."""
    content = (subject.build(work, WEB, "standalone") / "model.wasm").read_bytes()
    return len(content), len(gzip.compress(content, 9, mtime=0))


def rows(
    subjects: Sequence[Subject], work: Path, rounds: int, peer: Path | None, host: str
) -> list[WebRow]:
    """One for each shape.

    peer: a folder where `npm install onnxruntime-web` was run; host: one of HOSTS, which raises
    where results differ.
    """
    described = [_described(subject, work, WEB) for subject in subjects]
    job = {"rounds": rounds, "subjects": described, "threads": [1], **_peer(peer, 1)}
    return [_row(result) for result in HOSTS[host](job, work)]


def thread_rows(
    subjects: Sequence[Subject], work: Path, rounds: int, peer: Path | None, host: str
) -> list[ThreadRow]:
    """Measure as `rows` does, with one thread and with two, for a machine that does nothing else:
    by the clock.

    Ours in turns; onnxruntime-web, whose threads look for work all the time, in processes of its
    own.
    """
    described = [_described(subject, work, WEB_THREADS) for subject in subjects]
    shared = {"rounds": rounds, "subjects": described, "clock": True}
    ours = HOSTS[host]({**shared, "threads": [1, 2], **_peer(None, 1)}, work)
    result: list[list[float]] = [
        [statistics.median(row["ours 2"]), _ratio(row["ours 1"], row["ours 2"])] for row in ours
    ]
    for count in (1, 2) if peer else ():
        theirs = HOSTS[host]({**shared, "threads": [], **_peer(peer, count)}, work)
        for numbers, row in zip(result, theirs, strict=True):
            numbers.append(statistics.median(row["peer"]))
    return [ThreadRow(row["label"], *numbers) for row, numbers in zip(ours, result, strict=True)]


def _ratio(several: Sequence[float], others: Sequence[float]) -> float:
    """The median over rounds."""
    return statistics.median(one / other for one, other in zip(several, others, strict=True))


def _peer(folder: Path | None, threads: int) -> dict[str, Any]:
    peer = folder.absolute() / "node_modules" / "onnxruntime-web" / "dist" if folder else None
    return {"peer": str(peer) if peer else None, "peerThreads": threads}


def _row(result: dict[str, Any]) -> WebRow:
    ours, peers = result["ours 1"], result.get("peer")
    return WebRow(result["label"], statistics.median(ours), _ratio(ours, peers) if peers else None)


def _described(subject: Subject, work: Path, target: str) -> dict[str, Any]:
    bundle = subject.build(work, target, "standalone").absolute()
    manifest = json.loads((bundle / "manifest.json").read_text())
    names = ["manifest.json", manifest["library"]]
    return {
        "label": subject.name,
        "bundle": str(bundle),
        "names": [*names, *([manifest["weights_file"]] if manifest["weights"] else [])],
        "onnx": str(subject.file(work).absolute()),
        "cases": [_case(subject, dims, work) for dims in subject.web],
    }


def _case(subject: Subject, dims: Dims, work: Path) -> dict[str, Any]:
    feed = subject.feed(dims)
    taken = subject.select_inputs(feed)
    inputs = []
    for name, array in feed.items():
        # A page fetches it by its path.
        file = work / re.sub(r"[^\w.]", "-", f"{label(subject, dims)} {name}.bin")
        file.write_bytes(array.tobytes())
        inputs.append(
            {
                "name": name,
                "dtype": str(array.dtype),
                "shape": array.shape,
                "file": str(file.absolute()),
                "fixed": name not in taken,
            }
        )
    return {"label": label(subject, dims), "dims": dict(dims), "inputs": inputs}
