"""The library's side of verify, in a process of its own: loads the bundle as any user would, and
runs it.
"""

from collections.abc import Callable
from pathlib import Path

from compiler.isolation.memory import read_peak_memory
from compiler.isolation.step import Record, serve
from compiler.verify.inputs.buffers import step
from compiler.verify.point_loop import Arrays, PointFailed, run_points
from relaxd.errors import RelaxdError
from relaxd.loader.model import Model
from relaxd.loader.opening import load_library


def run_library(spec: Record, record: Callable[[Record], None]) -> None:
    """Run the library of `spec["bundle"]` at every point of the spec (see `run_points`), and record
    the peak of resident bytes.
    """
    model = load_library(Path(spec["bundle"]))

    def run(inputs: Arrays) -> Arrays:
        try:
            return run_step(model, inputs)
        except RelaxdError as error:
            raise PointFailed(f"{error.code}: {error}") from error

    run_points(spec, record, run)
    record({"peak_rss_bytes": read_peak_memory()})


def run_step(model: Model, inputs: Arrays) -> Arrays:
    """The model's outputs; those of a library with state and its caches, as the original gives
    them.
    """
    state = model.manifest.state
    if state is None:
        return model.run(inputs)
    call = step(model.manifest, state, inputs)
    return {**model.run(call.inputs), **call.presents(state)}


if __name__ == "__main__":
    serve(run_library)
