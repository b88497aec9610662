"""One engine on one model, in a process of its own: `python -m benchmarks.importers.trial ENGINE
FOLDER`.

FOLDER holds subject.json, and feed_<k>.npz with want_<k>.npz beside it; the outcome is one JSON
line on stdout.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines import ENGINES, Subject

TOLERANCE = 1e-3
"""Largest difference, relative to the greater of 1 and the output's range, that counts as right."""


def attempt(engine: str, folder: Path) -> dict[str, Any]:
    """`verdict` is ok, wrong or failed; `stage` is compile or run; `error` the worst difference;
    `message` one line.
    """
    document = json.loads((folder / "subject.json").read_text())
    subject = Subject(
        Path(document["path"]),
        tuple(document["names"]),
        dims=document["dims"],
        inputs=document["inputs"],
    )
    try:
        run = ENGINES[engine](subject)
    except Exception as error:
        return {"verdict": "failed", "stage": "compile", "message": _line(error)}
    worst = 0.0
    for index in range(document["points"]):
        with (
            np.load(folder / f"feed_{index}.npz") as feed,
            np.load(folder / f"want_{index}.npz") as want,
        ):
            try:
                created = run({name: feed[name] for name in document["names"]})
            except Exception as error:
                return {
                    "verdict": "failed",
                    "stage": "run",
                    "message": f"point {index}: {_line(error)}",
                }
            worst = max(
                worst,
                *(
                    _distance(one, want[name])
                    for one, name in zip(created, want.files, strict=True)
                ),
            )
    return {"verdict": "ok" if worst <= TOLERANCE else "wrong", "error": worst}


def _distance(created: Any, want: Any) -> float:
    if created.shape != want.shape:
        return float("inf")
    span = max(1.0, float(np.abs(want).max(initial=0)))
    difference = np.abs(created.astype(np.float64) - want.astype(np.float64)).max(initial=0) / span
    return float(difference) if np.isfinite(difference) else float("inf")


def _line(error: BaseException) -> str:
    text = (
        error.stderr
        if isinstance(error, subprocess.CalledProcessError) and error.stderr
        else str(error)
    )
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith("Exception from")
    ]
    telling = [line for line in lines if "error" in line.lower() or "check failed" in line.lower()]
    return re.sub(r"/\S*/", "", (telling or lines or [type(error).__name__])[0])[:200]


if __name__ == "__main__":
    print(json.dumps(attempt(sys.argv[1], Path(sys.argv[2]))), flush=True)
