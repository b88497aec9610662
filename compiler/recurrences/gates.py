"""Cells from the sums of a block of units: the equations of ONNX, in vectors of LANES.

A gate that is used twice is stored in place of its sum in between: its polynomial holds variables,
which an expression may not bind twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compiler.recurrences.layer import LANES
from compiler.recurrences.units import Task, Units
from compiler.tir.building import store, vectorize
from compiler.tir.exprs import load


@dataclass(frozen=True)
class Phase:
    """A part of a step: the sums of `gates` over `left` times the weights, then `apply`."""

    gates: tuple[int, ...]
    left: Any
    apply: Callable[[Units], None]


def phases_of(task: Task) -> list[Phase]:
    """The parts of a step, in order."""
    cell = task.layer.cell
    if task.layer.two_phases:
        return [Phase((0, 1), task.state, _gru_gates), Phase((2,), task.reset, _gru_candidate)]
    apply = {"LSTM": _lstm, "GRU": _linear_gru, "RNN": _rnn}[cell.kind]
    return [Phase(tuple(range(cell.gates)), task.state, apply)]


def _lstm(units: Units) -> None:
    """Gates in the order input, output, forget, candidate."""
    task, cell = units.task, units.task.layer.cell
    with vectorize(LANES) as v:
        before = load(task.memory, [units.position(v)])
        let_in = cell.act(0, units.sum(0, v) + units.peephole(0, v, before))
        store(task.accumulators, let_in, units.sum_index(0, v))
    with vectorize(LANES) as v:
        before, let_in = load(task.memory, [units.position(v)]), units.sum(0, v)
        if cell.input_forget:
            # ONNX calls this coupled: what is let in is what is forgotten.
            forget = 1.0 - let_in
        else:
            forget = cell.act(0, units.sum(2, v) + units.peephole(2, v, before))
        memory = forget * before + let_in * cell.act(1, units.sum(3, v))
        store(task.memory, memory, units.position(v))
    with vectorize(LANES) as v:
        now = load(task.memory, [units.position(v)])
        let_out = cell.act(0, units.sum(1, v) + units.peephole(1, v, now))
        # ONNX clips the arguments of f and g, not that of h.
        store(task.following, let_out * cell.activations[2](now), units.position(v))


def _linear_gru(units: Units) -> None:
    """Gates in the order update, reset, candidate; linear before the reset, so that all sums are of
    the state itself.
    """
    task, cell = units.task, units.task.layer.cell
    # Both gates in place of their sums; the update is used twice.
    for gate in (0, 1):
        with vectorize(LANES) as v:
            store(
                task.accumulators,
                cell.act(0, units.sum(gate, v)),
                units.sum_index(gate, v),
            )
    with vectorize(LANES) as v:
        update, reset = units.sum(0, v), units.sum(1, v)
        candidate = cell.act(1, units.input(2, v) + reset * units.sum(2, v))
        before = load(task.state, [units.position(v)])
        store(task.following, (1.0 - update) * candidate + update * before, units.position(v))


def _gru_gates(units: Units) -> None:
    """The update is kept, the state scaled by the reset becomes the left side of the candidate."""
    task, cell = units.task, units.task.layer.cell
    with vectorize(LANES) as v:
        update, reset = (cell.act(0, units.sum(gate, v)) for gate in (0, 1))
        store(task.memory, update, units.position(v))
        # The sums of the candidate read all units of it, so it needs memory of its own.
        store(task.reset, reset * load(task.state, [units.position(v)]), units.position(v))


def _gru_candidate(units: Units) -> None:
    task, cell = units.task, units.task.layer.cell
    with vectorize(LANES) as v:
        candidate, update = cell.act(1, units.sum(2, v)), load(task.memory, [units.position(v)])
        before = load(task.state, [units.position(v)])
        store(task.following, (1.0 - update) * candidate + update * before, units.position(v))


def _rnn(units: Units) -> None:
    task, cell = units.task, units.task.layer.cell
    with vectorize(LANES) as v:
        store(task.following, cell.act(0, units.sum(0, v)), units.position(v))
