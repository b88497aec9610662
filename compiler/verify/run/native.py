"""The library's side of verify, in a process of its own: loads the bundle as anybody would, and
runs it.
"""

import time
from collections.abc import Callable
from pathlib import Path

from compiler.isolation.step import Record, serve
from compiler.verify import npz
from compiler.verify.time_budget import Pace
from relaxd.errors import RelaxdError
from relaxd.loader.model import load


def run_points(spec: Record, record: Callable[[Record], None]) -> None:
    """spec: bundle, seconds, and points as `{index, inputs, outputs}` files; records each point."""
    model = load(Path(spec["bundle"]))
    pace = Pace(spec["seconds"])
    for point in spec["points"]:
        inputs = npz.read(Path(point["inputs"]))
        if objection := pace.objection(inputs):
            record({"index": point["index"], "skipped": objection})
            continue
        started = time.perf_counter()
        try:
            outputs = model.run(inputs)
        except RelaxdError as error:
            record({"index": point["index"], "failed": f"{error.code}: {error}"})
            continue
        pace.took(inputs, time.perf_counter() - started)
        npz.write(Path(point["outputs"]), outputs)
        record({"index": point["index"]})


if __name__ == "__main__":
    serve(run_points)
