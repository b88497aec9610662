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
def _texts() -> dict[str, str]:
    from compiler.ir.pt2.signature_table import TEXT

    entries = (entry.removesuffix(")").partition("(") for entry in TEXT.split())
    return {f"aten::{name}": words for name, _, words in entries}


@cache
def arguments_of(signature: str) -> tuple[tuple[str, Any], ...] | None:
    """Each argument's name and default, of an operator and overload (`aten::add.Tensor`); None for
    one that is not in the table.
    """
    words = _texts().get(signature)
    if not words:
        return None if words is None else ()
    return tuple(map(_argument, words.split(";")))


def _argument(text: str) -> tuple[str, Any]:
    name, sign, default = text.partition("=")
    return name, json.loads(default) if sign else MISSING


@cache
def views() -> frozenset[str]:
    """The operators whose result shares the memory of their first argument."""
    from compiler.ir.pt2.signature_table import VIEWS

    return frozenset(f"aten::{name}" for name in VIEWS.split())


@cache
def _operators() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in _texts())


def why_not(kind: str) -> str | None:
    """Why an operator cannot be imported, None where it can."""
    from compiler.ir.pt2.signature_table import REFUSED

    space, _, name = kind.partition("::")
    if kind in REFUSED or REFUSED.get(kind.removesuffix("_")):
        return REFUSED.get(kind) or REFUSED[kind.removesuffix("_")]
    if kind in _operators() or kind in _OTHERS:
        return None
    if space == "python":
        return f"no importer for {name} of sizes"
    if space == "higher_order":
        return f"the higher-order operator {name} is not supported"
    if space not in ("aten", "prim"):
        return (
            "a custom operator: decompose it when exporting (torch.library's kernel for "
            "CompositeImplicitAutograd), or leave it out of the program"
        )
    return f"no importer for {kind}"


_OTHERS = frozenset({
    "prim::If", "prim::Loop", "prim::min", "prim::max", "torchvision::nms", "higher_order::scan",
    "higher_order::map_impl", "torchao::choose_qparams_affine", "torchao::dequantize_affine",
    "torchao::quantize_affine",
    *(f"quantized_decomposed::{name}" for name in (
        "choose_qparams", "choose_qparams_per_token_asymmetric", "choose_qparams_symmetric",
        "dequantize_per_channel", "dequantize_per_channel_group", "dequantize_per_tensor",
        "dequantize_per_token", "quantize_per_channel", "quantize_per_tensor",
        "quantize_per_token",
    )),
})  # fmt: skip
