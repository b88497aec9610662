"""ONNX's conformance cases through every engine, as a table of outcomes; reports made earlier can
be taken in.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MODES = ("static", "dynamic")
COUNTED = ("ok", "refused", "wrong", "error", "crash", "timeout")


def measure(
    engines: Sequence[str], seconds: float, sample: int | None, known: Path | None
) -> list[dict[str, Any]]:
    """A report of `tests.conformance` for each engine and mode: `known`/ENGINE_MODE.json if there
    is one, else run now.
    """
    return [_report(engine, mode, seconds, sample, known) for engine in engines for mode in MODES]


def _report(
    engine: str, mode: str, seconds: float, sample: int | None, known: Path | None
) -> dict[str, Any]:
    path = None if known is None else known / f"{engine}_{mode}.json"
    if path is not None and path.exists():
        return _read(path)
    print(f"conformance: {engine}, {mode}", file=sys.stderr, flush=True)
    with TemporaryDirectory(prefix="conformance-") as folder:
        created = Path(folder) / "report.json"
        command = [
            sys.executable,
            "-m",
            "tests.conformance",
            "--engine",
            engine,
            "--mode",
            mode,
            "--seconds",
            str(seconds),
        ]
        command += ["--json", str(created)] + ([] if sample is None else ["--sample", str(sample)])
        # Its exit status says whether any answer was wrong, which is what is counted here.
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        return _read(created)


def _read(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    return dict(document[0] if isinstance(document, list) else document)


def markdown(reports: Iterable[dict[str, Any]]) -> str:
    """A row for each engine and mode: node cases by outcome, then the right ones among the models
    of onnx's data folders.
    """
    lines = [
        "| engine | axes | node cases | " + " | ".join(COUNTED) + " | other models right |",
        "|---|---|" + "---:|" * (len(COUNTED) + 2),
    ]
    for report in reports:
        node = report["totals"].get("node", {})
        others = [counts for suite, counts in report["totals"].items() if suite != "node"]
        right = (
            f"{sum(counts['ok'] for counts in others)} of "
            f"{sum(counts['cases'] for counts in others)}"
        )
        counts = " | ".join(str(node.get(outcome, 0)) for outcome in COUNTED)
        lines.append(
            f"| {report['engine']} | {report['mode']} | {node.get('cases', 0)} | {counts} | "
            f"{right} |"
        )
    return "\n".join(lines) + "\n"
