"""Which inputs index into something, and the range of indices that is valid: what sample inputs
must keep to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.ir.torchscript.loading import Program

PASS_THROUGH = frozenset(
    f"aten::{name}"
    for name in (
        "to", "view", "reshape", "flatten", "unsqueeze", "squeeze", "slice", "select", "expand",
        "transpose", "permute", "t", "contiguous",
        "clone", "clamp", "narrow", "repeat", "long", "int", "type_as", "detach", "alias",
        "expand_as", "chunk", "split",
    )
)  # fmt: skip
"""Operators whose first argument's elements come out unchanged."""


def index_bounds(
    program: Program, indexed: Sequence[tuple[Any, int, int]], inputs: set[str]
) -> dict[str, tuple[int, int]]:
    """Bounds by input name: the tightest of all its uses as an index; `indexed` are torch values
    with their least and greatest index.
    """
    names = {
        raw.debugName(): argument.name
        for raw, argument in zip(program.graph.inputs(), program.schema.arguments, strict=True)
    }
    bounds: dict[str, tuple[int, int]] = {}
    for raw, low, high in indexed:
        source = names.get(_source(raw).debugName())
        if source in inputs:
            least, most = bounds.get(source, (low, high))
            bounds[source] = (max(least, low), min(most, high))
    return bounds


def _source(raw: Any) -> Any:
    while raw.node().kind() in PASS_THROUGH:
        raw = next(iter(raw.node().inputs()))
    return raw
