"""One engine holding one model: `python -m benchmarks.cpu.worker ENGINE FOLDER`, asked for timings one line at a time.

A request is a JSON line `{"point": k, "seconds": s}`; the answer has the milliseconds of every call made in that time and
the anonymous memory that the first call at that point added, in bytes. `{"point": k, "save": file}` stores the outputs.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines import ENGINES, Arrays, Runner, Subject


def main(engine: str, folder: Path) -> None:
    """Compile, say how long that took, then answer until standard input ends."""
    document = json.loads((folder / "subject.json").read_text())
    subject = Subject(**{**document, "path": Path(document["path"]), "names": tuple(document["names"])})
    started = time.perf_counter()
    try:
        run = ENGINES[engine](subject)
    except Exception as error:
        _say({"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]})
        return
    _say({"compile_seconds": time.perf_counter() - started})
    for line in sys.stdin:
        request = json.loads(line)
        with np.load(folder / f"feed_{request['point']}.npz") as stored:
            feed = dict(stored)
        try:
            _say(_save(run, feed, request["save"]) if "save" in request else _timed(run, feed, request["seconds"]))
        except Exception as error:
            _say({"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]})


def _timed(run: Runner, feed: Arrays, seconds: float) -> dict[str, Any]:
    bytes_before = _anonymous("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")
    run(feed)
    grown = _anonymous("VmHWM") - _anonymous("RssFile") - _anonymous("RssShmem") - bytes_before
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        run(feed)
        times.append(1e3 * (time.perf_counter() - started))
    return {"milliseconds": times, "memory_bytes": grown}


def _save(run: Runner, feed: Arrays, file: str) -> dict[str, Any]:
    np.savez(file, *run(feed))
    return {"saved": file}


def _anonymous(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found, f"no {field} in /proc/self/status"
    return 1024 * int(found[1])


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
