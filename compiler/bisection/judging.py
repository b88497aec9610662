"""Says who is wrong where a cut departs: the library, the reference, or neither, where a node
enlarges differences of rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import onnx

from compiler.bisection import cuts, float64, reproducer
from compiler.bisection.cuts import Array, Cut
from compiler.bisection.search import Found
from compiler.bisection.trials import Departure, Trials
from compiler.bisection.values import evaluated, session_of
from compiler.ir.onnx.graph import Graph
from compiler.verify.tolerance import compare, tolerance_of


class Wrong(StrEnum):
    """Which side departs from float64 by more than the tolerance."""

    LIBRARY = "library"
    REFERENCE = "reference"
    BOTH = "both"
    NEITHER = "neither"


def judged(trials: Trials, found: Found) -> dict[str, Any]:
    """The JSON form: `wrong`, one of Wrong, where float64 could be computed; `rounding`, true where
    the node computes from the library's inputs what the reference would, and those inputs agree
    with the reference's within the tolerance.
    """
    assert found.cut is not None
    wrong = _wrong(trials, trials.departures[found.cut])
    rounding = len(found.cut.nodes - trials.graph.bookkeeping) > 1 and _rounding(trials, found)
    return {**({"wrong": wrong.value} if wrong else {}), **({"rounding": True} if rounding else {})}


def _wrong(trials: Trials, departure: Departure) -> Wrong | None:
    model = onnx.load(departure.folder / reproducer.MODEL)
    inputs = trials.values.of([value.name for value in model.graph.input])
    exact = float64.evaluated(model, inputs)
    if exact is None:
        return None
    names = departure.departing
    ours, theirs = (
        _differs(trials, {name: side[name] for name in names}, exact)
        for side in (departure.got, departure.want)
    )
    if ours and theirs:
        return Wrong.BOTH
    return Wrong.LIBRARY if ours else Wrong.REFERENCE if theirs else Wrong.NEITHER


def _rounding(trials: Trials, found: Found) -> bool:
    """Whether the node alone is right, given the inputs that the library computes for it."""
    graph, node = trials.graph, found.last
    assert found.cut is not None
    inner = {name for index in found.cut.nodes for name in graph.gives[index]}
    taken = [name for name in graph.takes[node] if name in inner]
    given = tuple(name for name in graph.gives[node] if name in trials.values.tensors)
    shown = Cut(found.cut.nodes, (*taken, *given))
    departing = trials.departing(shown)
    if not departing or set(departing) & set(taken):
        return False
    got = trials.departures[shown].got
    outside = [name for name in graph.takes[node] if name not in (*taken, *graph.constants)]
    feed = {**trials.values.of(outside), **{name: got[name] for name in taken}}
    right = _alone(graph, node, feed, {name: trials.values.tensors[name] for name in given})
    return not _differs(trials, {name: got[name] for name in given}, right)


def _alone(
    graph: Graph, node: int, feed: Mapping[str, Array], dtypes: Mapping[str, str]
) -> Mapping[str, Array]:
    """What the reference computes for the node."""
    outputs = [cuts.output(name, dtype, None) for name, dtype in dtypes.items()]
    model = cuts.model_of(graph, frozenset({node}), cuts.fixed(feed).inputs, outputs)
    session = session_of(model.SerializeToString())
    return dict(zip(dtypes, evaluated(session, list(dtypes), feed), strict=True))


def _differs(trials: Trials, got: Mapping[str, Array], want: Mapping[str, Array]) -> bool:
    """Whether any of the arrays departs from the one of its name, which may be wider."""
    options = trials.request.options
    return any(
        compare(
            array,
            np.asarray(want[name]).astype(array.dtype),
            tolerance_of(array.dtype.name, options.atol, options.rtol),
        ).problem
        for name, array in got.items()
    )
