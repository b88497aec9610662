"""LSTM and GRU layers over the middle axis of sequences."""

from typing import Any

from tests.fuzz.draft import Draft
from tests.fuzz.registry import operator


@operator(1)
def recurrence(draft: Draft) -> None:
    x = draft.pick(3)
    x.fill_inputs(0, 1)
    op = draft.choose(("LSTM", "GRU"))
    direction = draft.choose(("forward", "reverse", "bidirectional"))
    depth, hidden = x.fix_extents(2), draft.choose((1, 7, 8, 15, 16, 17, 24, 33))
    ways, gates = 2 if direction == "bidirectional" else 1, {"LSTM": 4, "GRU": 3}[op]
    inputs = [
        draft.node("Transpose", [x.name], perm=[1, 0, 2])[0],
        draft.weight(ways, gates * hidden, depth, fan=depth),
        draft.weight(ways, gates * hidden, hidden, fan=hidden),
    ]
    if draft.chance(0.6):
        inputs.append(draft.weight(ways, 2 * gates * hidden))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU" and draft.chance(0.5):
        attributes["linear_before_reset"] = 1
    steps = draft.node(op, inputs, **attributes)[0]
    turned = draft.node("Transpose", [steps], perm=[2, 0, 1, 3])[0]
    shape = draft.constant([0, 0, ways * hidden], "int64")
    draft.apply("Reshape", [turned, shape], (*x.shape[:2], ways * hidden))
