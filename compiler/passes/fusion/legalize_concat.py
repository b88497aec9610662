"""Legalises concatenations so that FuseOps joins producers to them, whatever the extents."""

from typing import Any

from tvm import relax, topi

INJECTIVE = {"op_pattern": 2}
"""TVM finds by itself only that a concatenation of known extents is injective: with a dim among
them it calls the program opaque.
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
