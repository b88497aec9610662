"""In node: modules beside onnxruntime-web, one thread each."""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.standalone.subjects import WEB, Dims, Subject, label
from compiler.verify.emulation import engine

_PROGRAM = Path(__file__).with_name("web.mjs")
_PACKAGE = Path(__file__).parents[2] / "clients" / "js" / "src" / "index.js"


@dataclass(frozen=True)
class WebRow:
    """Seconds of a call, and the median of each round's ratio to onnxruntime-web; None without."""

    where: str
    seconds: float
    by_peer: float | None


def sizes(subject: Subject, work: Path) -> tuple[int, int]:
    """Bytes of the module, and after gzip."""
    content = (subject.built(work, WEB, "standalone") / "model.wasm").read_bytes()
    return len(content), len(gzip.compress(content, 9, mtime=0))


def rows(subjects: Sequence[Subject], work: Path, rounds: int, peer: Path | None) -> list[WebRow]:
    """One for each shape; peer: a folder where `npm install onnxruntime-web` was run. Raises
    CalledProcessError where results differ.
    """
    job = {
        "package": str(_PACKAGE),
        "peer": str(peer.absolute()) if peer else None,
        "rounds": rounds,
        "subjects": [_described(subject, work) for subject in subjects],
    }
    (work / "web.json").write_text(json.dumps(job))
    program = engine.find()
    if program is None:
        raise SystemExit(f"{engine.lacking()}: leave out --web")
    printed = subprocess.check_output([program, str(_PROGRAM), str(work / "web.json")], text=True)
    return [_row(found) for found in json.loads(printed)]


def _row(found: dict[str, Any]) -> WebRow:
    ours = found["ours"]
    ratios = [one / other for one, other in zip(ours, found.get("peer", ()), strict=False)]
    return WebRow(
        found["label"], statistics.median(ours), statistics.median(ratios) if ratios else None
    )


def _described(subject: Subject, work: Path) -> dict[str, Any]:
    bundle = subject.built(work, WEB, "standalone").absolute()
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
