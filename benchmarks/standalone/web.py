"""In browsers and node: modules beside onnxruntime-web and LiteRT.js, one thread each, on WebGPU,
and what a second thread gains.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.standalone.hosts import HOSTS
from benchmarks.standalone.subjects import GPU, WEB, WEB_THREADS, Dims, Subject, label


@dataclass(frozen=True)
class WebRow:
    """Seconds of a call, and the median of each round's ratio to the peer; None without."""

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
    subjects: Sequence[Subject],
    work: Path,
    rounds: int,
    peer: Path | None,
    host: str,
    target: str = WEB,
) -> list[WebRow]:
    """One for each shape.

    target: one of WEB_TARGETS, of our modules; peer: a folder where `npm install onnxruntime-web`
    was run; host: one of HOSTS, which raises where results differ.
    """
    described = [_described(subject, work, target) for subject in subjects]
    provider = "webgpu" if target == GPU else "wasm"
    job = {"rounds": rounds, "subjects": described, "threads": [1], **_peer(peer, 1, provider)}
    return [_row(result) for result in HOSTS[host](job, work)]


def lite_rows(files: Mapping[str, Path], work: Path, rounds: int, peer: Path) -> list[WebRow]:
    """One for each TFLite file of floats, beside LiteRT.js in a page of headless Chromium.

    peer: a folder where `npm install @litertjs/core` was run. Raises RuntimeError where results
    differ.
    """
    subjects = [_described_lite(name, file, work) for name, file in files.items()]
    engine = {"peer": str(peer.absolute() / "node_modules/@litertjs/core"), "provider": "litert"}
    job = {"rounds": rounds, "subjects": subjects, "threads": [1], **engine}
    return [_row(result) for result in HOSTS["chromium"](job, work)]


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


def _peer(folder: Path | None, threads: int, provider: str = "wasm") -> dict[str, Any]:
    """Give the fields of a job on onnxruntime-web, which is installed in a folder."""
    peer = folder.absolute() / "node_modules" / "onnxruntime-web" / "dist" if folder else None
    return {"peer": str(peer) if peer else None, "peerThreads": threads, "provider": provider}


def _row(result: dict[str, Any]) -> WebRow:
    ours, peers = result["ours 1"], result.get("peer")
    return WebRow(result["label"], statistics.median(ours), _ratio(ours, peers) if peers else None)


def _described(subject: Subject, work: Path, target: str) -> dict[str, Any]:
    bundle = subject.build(work, target, "standalone").absolute()
    cases = [
        _case(label(subject, dims), dims, subject.feed(dims), subject.consts, work)
        for dims in subject.web
    ]
    return _job_of(subject.name, bundle, subject.file(work), cases)


def _described_lite(name: str, file: Path, work: Path) -> dict[str, Any]:
    from compiler import compile_model

    bundle, draw = work.absolute() / f"{name}-tflite", np.random.default_rng(0)
    if not bundle.exists():
        compile_model(file, output=bundle, target=WEB, options={"verify": False, "profile": False})
    specs = json.loads((bundle / "manifest.json").read_text())["inputs"]
    feed = {one["name"]: draw.standard_normal(one["shape"]).astype(np.float32) for one in specs}
    return _job_of(name, bundle, file, [_case(name, {}, feed, (), work)])


def _job_of(name: str, bundle: Path, model: Path, cases: Sequence[Any]) -> dict[str, Any]:
    manifest = json.loads((bundle / "manifest.json").read_text())
    names = ["manifest.json", manifest["library"]]
    return {
        "label": name,
        "bundle": str(bundle),
        "names": [*names, *([manifest["weights_file"]] if manifest["weights"] else [])],
        "model": str(model.absolute()),
        "cases": cases,
    }


def _case(
    where: str, dims: Dims, feed: Mapping[str, NDArray[Any]], fixed: Container[str], work: Path
) -> dict[str, Any]:
    """Inputs as files; fixed: the names of those that the bundle does not take."""
    inputs = []
    for name, array in feed.items():
        # A page fetches it by its path.
        file = work / re.sub(r"[^\w.]", "-", f"{where} {name}.bin")
        file.write_bytes(array.tobytes())
        inputs.append(
            {
                "name": name,
                "dtype": str(array.dtype),
                "shape": array.shape,
                "file": str(file.absolute()),
                "fixed": name in fixed,
            }
        )
    return {"label": where, "dims": dict(dims), "inputs": inputs}
