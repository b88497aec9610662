"""An adapter as its file has it, and how it fits the matmuls of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from relaxd.errors import AdapterError

Array: TypeAlias = np.ndarray[Any, Any]
Key: TypeAlias = tuple[int, str]
"""The layer and the name of a matmul, such as `q_proj`."""
JOINT = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""Matmuls that some models have in one, by its name: the rows of the matrix are theirs in order."""
_ROTATED = ("q_proj", "k_proj")


@dataclass(frozen=True)
class LowRank:
    """The change of the transpose of a matrix: down [depth, rank] @ up [rank, width], in
    float32, the adapter's scale in `up`.
    """

    down: Array
    up: Array


@dataclass(frozen=True)
class Adapter:
    """The changes of an adapter by matmul. neighbours: as llama.cpp has the rows of queries and
    keys of some models: pairs that rotate beside each other, not half a head apart. magnitudes: of
    DoRA, the norm of each row of the changed matrix.
    """

    changes: Mapping[Key, LowRank]
    neighbours: bool = False
    magnitudes: Mapping[Key, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """The matmuls of a model that an adapter has to fit. widths: columns by name; heads, groups:
    heads of queries, and of keys and values; neighbours: as in Adapter.
    """

    widths: Mapping[str, int]
    heads: int
    groups: int
    neighbours: bool


def fit(adapter: Adapter, shape: Shape) -> dict[Key, LowRank]:
    """The adapter's changes for each matmul of the model alone, rows in the model's order; raises
    AdapterError for joint ones of other sizes.
    """
    fitted: dict[Key, LowRank] = {}
    for (layer, name), change in adapter.changes.items():
        for own, part in _parts(layer, name, change, shape.widths).items():
            turned = own in _ROTATED and adapter.neighbours != shape.neighbours
            heads = shape.heads if own == _ROTATED[0] else shape.groups
            fitted[layer, own] = _turn(part, heads, shape.neighbours) if turned else part
    return fitted


def _parts(layer: int, name: str, change: LowRank, widths: Mapping[str, int]) -> dict[str, LowRank]:
    """The parts of a joint matmul's change by name, of any other the change itself."""
    names = JOINT.get(name)
    columns = change.up.shape[1]
    if names is None and name == "up_proj" and _total(JOINT["gate_up_proj"], widths) == columns:
        # llama.cpp calls the joint one so.
        names = JOINT["gate_up_proj"]
    if names is None:
        return {name: change}
    if _total(names, widths) != columns:
        raise AdapterError(
            f"the adapter is of another model: it changes {columns} columns of {name} in layer "
            f"{layer}, which are not those of {', '.join(names)} together",
            hint="give the adapter of this model; all parts of a joint matmul must have adapters",
            reason="base",
        )
    parts, start = {}, 0
    for own in names:
        parts[own] = replace(change, up=change.up[:, start : start + widths[own]])
        start += widths[own]
    return parts


def _total(names: tuple[str, ...], widths: Mapping[str, int]) -> int | None:
    """The columns of all, None where one is not known."""
    if any(name not in widths for name in names):
        return None
    return sum(widths[name] for name in names)


def _turn(change: LowRank, heads: int, neighbours: bool) -> LowRank:
    """The columns of every head with the pairs that rotate beside each other, or the reverse."""
    rank, width = change.up.shape
    if width % (2 * heads):
        # Another model's, which whoever compares the sizes refuses.
        return change
    pairs = width // heads // 2
    split = (rank, heads, 2, pairs) if neighbours else (rank, heads, pairs, 2)
    up = change.up.reshape(split).swapaxes(2, 3).reshape(rank, width)
    return replace(change, up=np.ascontiguousarray(up))


def check_finite(key: Key, *arrays: Array) -> None:
    """Raises AdapterError for numbers that are none."""
    if not all(np.isfinite(array).all() for array in arrays):
        layer, name = key
        raise malformed_error(f"the adapter of {name} in layer {layer} has NaN or infinity")


def malformed_error(message: str) -> AdapterError:
    """The error of files that are incomplete or contradict themselves."""
    return AdapterError(message, reason="file", hint="save the adapter again, or fetch it again")


def unsupported_error(what: str, hint: str = "") -> AdapterError:
    """The error of adapters that change what is not changed here."""
    return AdapterError(
        f"{what} cannot be loaded at run time",
        reason="unsupported",
        hint=hint
        or "merge the adapter into the model, as PEFT's merge_and_unload does, and compile that",
    )
