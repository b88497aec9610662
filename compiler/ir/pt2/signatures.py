"""The arguments of ATen's operators with their defaults: a `.pt2` file states only those that a
call gives, and is read without torch.

The table is made by `python -m compiler.ir.pt2 --write`, of the operators that the importer has.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

MISSING = object()
"""The default of an argument that every call gives."""


@cache
def table() -> dict[str, tuple[tuple[str, Any], ...]]:
    """By operator and overload (`aten::add.Tensor`), each argument's name and default."""
    from compiler.ir.pt2.signature_table import TEXT

    signatures = {}
    for entry in TEXT.split():
        name, _, words = entry.removesuffix(")").partition("(")
        signatures[f"aten::{name}"] = tuple(map(_argument, words.split(";"))) if words else ()
    return signatures


def _argument(text: str) -> tuple[str, Any]:
    name, given, default = text.partition("=")
    return name, json.loads(default) if given else MISSING


def operators() -> set[str]:
    """The operators of the table, by their names without overloads."""
    return {name.partition(".")[0] for name in table()}
