"""A recurrent layer as text, from which a pass that knows the processor writes its program anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.recurrences.cells import Cell, NamedActivation
from compiler.recurrences.layer import Integers, Recurrence
from compiler.tir.exprs import require_int

ATTRIBUTE = "recurrence"
"""The attribute of a program whose value `describe` gave."""


def describe(directions: Sequence[Recurrence]) -> str:
    """The directions of a layer of known size without an instruction, as JSON."""
    return json.dumps([_to_json(layer) for layer in directions])


def parse(text: str) -> list[Recurrence]:
    """The directions that `describe` was given, over new dims that they share."""
    clock = {name: tirx.Var(name, "int64") for name in ("steps", "batch")}
    return [replace(_from_json(record), **clock) for record in json.loads(text)]


def _to_json(layer: Recurrence) -> dict[str, Any]:
    cell, integers = layer.cell, layer.integers
    assert integers is not None
    activations: list[Any] = list(cell.activations)
    return {
        "kind": cell.kind,
        "activations": [[each.name, each.alpha, each.beta] for each in activations],
        "clip": cell.clip,
        "input_forget": cell.input_forget,
        "linear_before_reset": cell.linear_before_reset,
        "hidden": require_int(layer.hidden),
        "blocks": require_int(layer.blocks),
        "backward": layer.backward,
        "peepholes": layer.peepholes,
        "masked": layer.masked,
        "zeros": integers.zeros,
        "ended": integers.ended,
    }


def _from_json(record: dict[str, Any]) -> Recurrence:
    activations = tuple(NamedActivation(*each) for each in record["activations"])
    cell = Cell(
        record["kind"],
        activations,
        record["clip"],
        record["input_forget"],
        record["linear_before_reset"],
    )
    return Recurrence(
        cell,
        tirx.IntImm("int64", record["hidden"]),
        tirx.IntImm("int64", record["blocks"]),
        record["backward"],
        record["peepholes"],
        record["masked"],
        integers=Integers(record["zeros"], record["ended"]),
    )
