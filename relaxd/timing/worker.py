"""One engine holding one model: `python -m relaxd.timing.worker ENGINE FOLDER`, asked for timings
one line at a time.

A request is a JSON line `{"point": k, "seconds": s}`; the answer has the milliseconds of every call
made in that time. `{"point": k, "save": file}` stores the outputs. `{"resident": true}` gives the
greatest memory that the process has had, in bytes, its program and files that it maps included.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.timing.engines import ENGINES, Arrays, Runner, Subject

Answer = dict[str, Any]
SUBJECT = "subject.json"
"""The file of FOLDER that says what is run; `feed_K.npz` beside it are the inputs at point K."""


def main(engine: str, folder: Path) -> None:
    """Load the model, say how long that took, then answer until standard input ends."""
    document = read_subject(folder)
    subject = Subject(**{**document, "bundle": Path(document["bundle"])})
    serve(lambda: ENGINES[engine](subject), folder, answer)


def read_subject(folder: Path) -> dict[str, Any]:
    """The fields of a subject, from the folder's document."""
    document = json.loads((folder / SUBJECT).read_text())
    return {**document, "path": Path(document["path"]), "names": tuple(document["names"])}


def serve(
    load: Callable[[], Runner],
    folder: Path,
    answer: Callable[[Runner, Arrays, dict[str, Any]], Answer],
) -> None:
    """Load, and answer the requests of standard input; an engine's error is an answer."""
    started = time.perf_counter()
    try:
        run = load()
    except Exception as error:
        _say(_failure(error))
        return
    _say({"compile_seconds": time.perf_counter() - started})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _say(answer(run, _feed(folder, request), request))
        except Exception as error:
            _say(_failure(error))


def answer(run: Runner, feed: Arrays, request: dict[str, Any]) -> Answer:
    """Answer one request."""
    if "resident" in request:
        return {"resident_bytes": memory_of("VmHWM")}
    if "save" in request:
        np.savez(request["save"], *run(feed))
        return {"saved": request["save"]}
    return time_calls(run, feed, request["seconds"])


def time_calls(run: Runner, feed: Arrays, seconds: float) -> Answer:
    """The milliseconds of each call in this time, three at least."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        run(feed)
        times.append(1e3 * (time.perf_counter() - started))
    return {"milliseconds": times}


def memory_of(field: str) -> int:
    """Bytes of a field of this process's status, as Linux counts them."""
    match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match, f"no {field} in /proc/self/status"
    return 1024 * int(match[1])


def _feed(folder: Path, request: dict[str, Any]) -> Arrays:
    if "point" not in request:
        return {}
    with np.load(folder / f"feed_{request['point']}.npz") as stored:
        return dict(stored)


def _failure(error: Exception) -> Answer:
    return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}


def _say(answer: Answer) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
