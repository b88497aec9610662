"""In node: modules beside onnxruntime-web, one thread each, and what a second thread gains."""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.standalone.subjects import WEB, WEB_THREADS, Dims, Subject, label
from compiler.verify.emulation import engine

_PROGRAM = Path(__file__).with_name("web.mjs")
_PACKAGE = Path(__file__).parents[2] / "clients" / "js" / "src" / "index.js"


@dataclass(frozen=True)
class WebRow:
    """Seconds of a call, and the median of each round's ratio to onnxruntime-web; None without."""

    where: str
    seconds: float
    by_peer: float | None


@dataclass(frozen=True)
class ThreadRow:
    """Seconds of a call by the clock, with one thread and with two; of onnxruntime-web, too, None
    without.
    """

    where: str
    one: float
    two: float
    peer_one: float | None = None
    peer_two: float | None = None


def sizes(subject: Subject, work: Path) -> tuple[int, int]:
    """Bytes of the module, and after gzip."""
    content = (subject.built(work, WEB, "standalone") / "model.wasm").read_bytes()
    return len(content), len(gzip.compress(content, 9, mtime=0))


def rows(subjects: Sequence[Subject], work: Path, rounds: int, peer: Path | None) -> list[WebRow]:
    """One for each shape; peer: a folder where `npm install onnxruntime-web` was run. Raises
    CalledProcessError where results differ.
    """
    described = [_described(subject, work, WEB) for subject in subjects]
    job = {"rounds": rounds, "subjects": described, "threads": [1], **_peer(peer, 1)}
    return [_row(found) for found in _ran(job, work)]


def thread_rows(
    subjects: Sequence[Subject], work: Path, rounds: int, peer: Path | None
) -> list[ThreadRow]:
    """As `rows`, with one thread and with two, for a machine that does nothing else: by the clock.

    Ours in turns; onnxruntime-web, whose threads look for work all the time, in processes of its
    own.
    """
    described = [_described(subject, work, WEB_THREADS) for subject in subjects]
    shared = {"rounds": rounds, "subjects": described, "clock": True}
    ours = _ran({**shared, "threads": [1, 2], **_peer(None, 1)}, work)
    found = [(row["label"], [_median(row, "ours 1"), _median(row, "ours 2")]) for row in ours]
    for count in (1, 2) if peer else ():
        rows = _ran({**shared, "threads": [], **_peer(peer, count)}, work)
        for (_, seconds), row in zip(found, rows, strict=True):
            seconds.append(_median(row, "peer"))
    return [ThreadRow(where, *seconds) for where, seconds in found]


def _median(row: dict[str, Any], engine_name: str) -> float:
    return statistics.median(row[engine_name])


def _peer(folder: Path | None, threads: int) -> dict[str, Any]:
    return {"peer": str(folder.absolute()) if folder else None, "peerThreads": threads}


def _ran(job: dict[str, Any], work: Path) -> list[dict[str, Any]]:
    """What the program measured of each case."""
    (work / "web.json").write_text(json.dumps({"package": str(_PACKAGE), **job}))
    program = engine.find()
    if program is None:
        raise SystemExit(f"{engine.lacking()}: leave out the parts web and threads")
    printed = subprocess.check_output([program, str(_PROGRAM), str(work / "web.json")], text=True)
    rows: list[dict[str, Any]] = json.loads(printed)
    return rows


def _row(found: dict[str, Any]) -> WebRow:
    ours = found["ours 1"]
    ratios = [one / other for one, other in zip(ours, found.get("peer", ()), strict=False)]
    return WebRow(
        found["label"], statistics.median(ours), statistics.median(ratios) if ratios else None
    )


def _described(subject: Subject, work: Path, target: str) -> dict[str, Any]:
    bundle = subject.built(work, target, "standalone").absolute()
    manifest = json.loads((bundle / "manifest.json").read_text())
    names = ["manifest.json", manifest["library"]]
    return {
        "label": subject.name,
        "bundle": str(bundle),
        "names": [*names, *([manifest["weights_file"]] if manifest["weights"] else [])],
        "onnx": str(subject.file(work)),
        "cases": [_case(subject, dims, work) for dims in subject.web],
    }


def _case(subject: Subject, dims: Dims, work: Path) -> dict[str, Any]:
    feed = subject.feed(dims)
    taken = subject.taken(feed)
    inputs = []
    for name, array in feed.items():
        file = work / f"{label(subject, dims)} {name}.bin".replace("/", "_")
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
