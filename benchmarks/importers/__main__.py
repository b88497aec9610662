"""`python -m benchmarks.importers`: every engine on every real model with dynamic axes, as a table.

Needs `pip install openvino==2026.4.1 iree-base-compiler==3.13.0 iree-base-runtime==3.13.0` beside the development
environment; an engine that is not installed is shown as missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from benchmarks.engines import PACKAGES
from tests import models

ENGINES = ("relaxd", "onnxruntime", "openvino", "tvm", "iree")


def main() -> int:
    """Run the chosen engines on the chosen models, print the table, write JSON and Markdown where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.importers", description=__doc__)
    parser.add_argument("--models", nargs="*", default=[name for name in models.MODELS if not name.endswith("_jit")])
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one engine on one model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    for name in options.models:
        with TemporaryDirectory(prefix="importers-") as folder:
            prepare(name, Path(folder))
            results[name] = {engine: trial(engine, Path(folder), options.timeout) for engine in options.engines}
        print(f"{name:24}", *(f"{engine}: {_cell(results[name][engine])}" for engine in options.engines), sep="  ", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    if options.markdown:
        options.markdown.write_text(markdown(results, options.engines))
    return 0


def prepare(name: str, folder: Path) -> None:
    """Write the subject, seeded inputs at each of the model's shapes, and ONNX Runtime's answers."""
    real, path = models.MODELS[name], models.path_of(name)
    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in constants]
    for index, dims in enumerate(real.shapes):
        feed = models.feed_of(name, dims, seed=index)
        np.savez(folder / f"feed_{index}.npz", **feed)
        np.savez(folder / f"want_{index}.npz", **models.reference(name, feed))
    subject = {"path": str(path), "names": names, "dims": dict(real.dims), "inputs": dict(real.inputs), "points": len(real.shapes)}
    (folder / "subject.json").write_text(json.dumps(subject))


def trial(engine: str, folder: Path, timeout: float) -> dict[str, Any]:
    """One engine on the prepared subject, in a process of its own that may crash or hang."""
    if importlib.util.find_spec(PACKAGES[engine]) is None:
        return {"verdict": "missing"}
    command = [sys.executable, "-m", "benchmarks.importers.trial", engine, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"verdict": "failed", "stage": "compile", "message": f"no result after {timeout:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"verdict": "crashed", "message": f"exit status {done.returncode}"}
    return dict(json.loads(lines[-1]))


def _cell(outcome: dict[str, Any]) -> str:
    verdict = str(outcome["verdict"])
    if verdict in ("ok", "wrong"):
        return f"{verdict} ({outcome['error']:.0e})"
    return f"{verdict} at {outcome['stage']}" if "stage" in outcome else verdict


def markdown(results: dict[str, dict[str, Any]], engines: list[str]) -> str:
    """The table, with the failures' messages below."""
    lines = ["| model | " + " | ".join(engines) + " |", "|---|" + "---|" * len(engines)]
    notes = []
    for name, row in results.items():
        lines.append(f"| {name} | " + " | ".join(_cell(row[engine]) for engine in engines) + " |")
        notes += [f"- {engine} on {name}: `{row[engine]['message']}`" for engine in engines if "message" in row[engine]]
    taken = {engine: sum(row[engine]["verdict"] == "ok" for row in results.values()) for engine in engines}
    lines.append("| right answers | " + " | ".join(f"{taken[engine]} of {len(results)}" for engine in engines) + " |")
    return "\n".join(
        [*lines, "", "Worst difference from ONNX Runtime over all shapes, relative to the output's range, in brackets.", "", *notes, ""]
    )


if __name__ == "__main__":
    sys.exit(main())
