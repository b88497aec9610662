"""The search in a process of its own: what it has found so far is on record when it is ended."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.bisection import reproducer
from compiler.bisection.findings import findings, sentence
from compiler.bisection.search import Location, Search
from compiler.bisection.trials import Departure, Trials
from compiler.bisection.values import Values, specs_of, typed_inputs
from compiler.frontend.entry import open_for
from compiler.ir.files.model_file import LoadedScript
from compiler.ir.onnx.model.nodes import Graph, fixed_inputs
from compiler.isolation.messages import CompileJob
from compiler.isolation.step import Record, serve
from relaxd.contract.request import CompileRequest


def search(spec: Record, record: Callable[[Record], None]) -> None:
    """Search for the first node that departs, record every progress, and keep the least model that
    shows it in the job's reproducer.

    spec: job, as JSON, with the inputs in its reproducer; departing: names of outputs.
    """
    job = CompileJob(**{key: value for key, value in spec["job"].items() if key != "kind"})
    loaded = open_for(job, CompileRequest.from_json(job.request))
    if isinstance(loaded, LoadedScript):
        raise SystemExit("nodes are searched for in ONNX models alone")
    with tempfile.TemporaryDirectory(prefix="relaxd-bisection-") as folder:
        trials = _trials(job, loaded.proto, Path(folder))

        def report(location: Location) -> None:
            record(_record_of(trials, location))

        location = Search(trials.graph, spec["departing"], trials.departing, report).run()
        record(findings(trials.graph, location))


def _trials(job: CompileJob, model: onnx.ModelProto, scratch: Path) -> Trials:
    request = CompileRequest.from_json(job.request)
    fixed = fixed_inputs(model, dict(request.consts))
    graph = Graph(model, fixed)
    feed = {name: numpy_helper.to_array(tensor) for name, tensor in fixed.items()}
    with np.load(Path(str(job.reproducer)) / reproducer.INPUTS, allow_pickle=False) as archive:
        feed.update(typed_inputs(model, archive))
    values = Values(graph, feed, scratch)
    named = [name for names in graph.gives for name in names if name in values.tensors]
    return Trials(job, graph, values, specs_of(model, named, request), scratch)


def _record_of(trials: Trials, location: Location) -> dict[str, Any]:
    """The findings, after the reproducer took the model that shows them."""
    document = findings(trials.graph, location)
    if location.cut in trials.departures:
        _keep(trials, trials.departures[location.cut], document)
    return document


def _keep(trials: Trials, departure: Departure, document: dict[str, Any]) -> None:
    reproducer.replace(
        Path(str(trials.job.reproducer)),
        departure.folder,
        departure.request,
        trials.job.target,
        {**document, "message": sentence(document, None)},
    )


if __name__ == "__main__":
    serve(search)
