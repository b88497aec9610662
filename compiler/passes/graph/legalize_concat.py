"""Concatenations as programs that what comes before may be fused into, whatever extents their parts
have.
"""

from typing import Any

from tvm import relax, topi

INJECTIVE = {"op_pattern": 2}
"""TVM sees by itself only that parts of known extents are put side by side: where an extent is a
dim, it takes the program for opaque.
"""


def legalize_concat(builder: relax.BlockBuilder, call: Any) -> Any:
    """The tensor program of a `relax.concat`."""
    parts = call.args[0]
    while isinstance(parts, relax.Var):
        parts = builder.lookup_binding(parts)
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return builder.call_te(
        topi.concatenate,
        list(parts.fields),
        axis,
        primfunc_name_hint="concatenate",
        primfunc_attrs=INJECTIVE,
    )
