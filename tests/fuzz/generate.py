"""Draws a graph, its dims and the points that it is run at, from a seed."""

import numpy as np

from tests.fuzz import operators
from tests.fuzz.case import Case, Inputs, model_of, taken_by
from tests.fuzz.draft import CHANNELS, Draft, Extent, Inapplicable, Value
from tests.fuzz.registry import OPERATORS

assert operators.__all__

SIZES = (1, 15, 16, 17, 31, 33)
PRIMES = (2, 3, 5, 7, 11, 13, 19, 23, 29, 37, 41)
MOST = (34, 40, 47)
POINTS = 4
MOST_OPERATORS = 9
SHARE_OF_LAST = 0.35
"""How often an operator is the last of its graph, which so has 3 on average."""


def generate(seed: int) -> Case:
    """The graph of a seed: one or two inputs, one to nine operators, rather few: what is wrong is
    so of one or of two that are fused, and a build takes as long as its kernels are many.
    """
    draft = Draft(np.random.default_rng(seed))
    inputs, extents = _inputs(draft)
    draft.inputs = inputs
    names, shares = zip(*((name, share) for name, (_, share) in OPERATORS.items()), strict=True)
    chances = np.array(shares) / sum(shares)
    wanted = min(int(draft.random.geometric(SHARE_OF_LAST)), MOST_OPERATORS)
    for _ in range(20 * wanted):
        function, _share = OPERATORS[str(draft.random.choice(names, p=chances))]
        try:
            function(draft)
        except Inapplicable:
            continue
        wanted -= 1
        if not wanted:
            break
    if not draft.nodes or all(value.name in inputs for value in draft.values):
        x = draft.values[0]
        draft.values.append(Value(draft.node("Relu", [x.name])[0], x.shape))
    points = [{name: sizes[index] for name, sizes in extents.items()} for index in range(POINTS)]
    created = [value.name for value in draft.values if value.name not in inputs]
    read = {name for node in draft.nodes for name in taken_by(node)}
    outputs = [name for name in created if name not in read or draft.chance(0.1)]
    model = model_of(draft.nodes, inputs, list(draft.constants.values()), outputs or created[-1:])
    return Case(model, tuple(points), draft.quantized, seed)


def _inputs(draft: Draft) -> tuple[Inputs, dict[str, tuple[int, ...]]]:
    """Images, sequences, rows, or a mixture, over shared dims; each is the draft's value too."""
    worlds = (("n", "C", "h", "w"), ("n", "s", "C"), ("n", "C"))
    first = draft.choose((0, 0, 0, 1, 1, 2))
    shapes = [worlds[first]]
    if draft.chance(0.4):
        shapes.append(worlds[first if draft.chance(0.6) else draft.choose((0, 1, 2))])
    extents: dict[str, tuple[int, ...]] = {}
    inputs: Inputs = {}
    channels = draft.channels()
    for position, shape in enumerate(shapes):
        axes: list[str | int] = []
        for axis in shape:
            if axis == "C":
                axes.append(channels if draft.chance(0.8) else int(draft.choose(CHANNELS)))
            elif axis not in extents and draft.chance(0.2):
                axes.append(int(draft.choose((1, 4, 16, 17) if axis != "n" else (1, 2))))
            else:
                extents.setdefault(axis, _sizes(draft, axis))
                axes.append(axis)
        inputs[f"x{position}"] = tuple(axes)
        known: list[Extent] = [axis if isinstance(axis, int) else extents[axis] for axis in axes]
        draft.values.append(Value(f"x{position}", tuple(known)))
    return inputs, extents


def _sizes(draft: Draft, axis: str) -> tuple[int, ...]:
    """The least extent, the greatest, and others between."""
    if axis == "n":
        low, high = (0 if draft.chance(0.15) else 1), draft.choose((1, 2, 3, 5))
        return (low, high, *(int(draft.random.integers(low, high + 1)) for _ in range(POINTS - 2)))
    high = draft.choose((*SIZES[3:], *MOST))
    small = 0 if axis == "s" and draft.chance(0.1) else draft.choose((1, 1, 1, 2, 4, 8))
    between = [size for size in (*SIZES, *PRIMES) if small <= size <= high]
    return (small, high, *(draft.choose(between) for _ in range(POINTS - 2)))
