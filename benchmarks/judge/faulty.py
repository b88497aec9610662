"""The library's side of verify with a fault in its outputs: `python -m benchmarks.judge.faulty`,
which verification starts in place of its own.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.judge.faults import LANES, OUTPUT_FAULTS
from compiler.isolation.step import Record, serve
from compiler.verify.point_loop import Arrays, run_points
from compiler.verify.run.native import run_step
from relaxd.loader.opening import load


def run_faulty(spec: Record, record: Callable[[Record], None]) -> None:
    """Run the library as `compiler.verify.run.native` does, and change an output of it; spec: also
    names the fault, the output and the lanes of a vector.
    """
    model, fault = load(Path(spec["bundle"])), OUTPUT_FAULTS[spec["fault"]]

    def run(inputs: Arrays) -> Arrays:
        outputs = {name: np.array(array) for name, array in run_step(model, inputs).items()}
        fault(outputs[spec["output"]], int(spec[LANES]))
        return outputs

    run_points(spec, record, run)


if __name__ == "__main__":
    serve(run_faulty)
