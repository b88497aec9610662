"""Torch's dtypes: their codes in a graph, their names, and how operands promote."""

from collections.abc import Iterable
from typing import Any

from compiler.errors import ImportFailed

CODES: dict[int, str] = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64",
    5: "float16", 6: "float32", 7: "float64",
    11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip
"""torch.dtype by its number, as graphs carry it; complex and quantized ones are left out."""
NUMBERS = {name: code for code, name in CODES.items()}
DEFAULT_FLOAT = "float32"
"""What torch.get_default_dtype() is unless a program changes it, which TorchScript cannot."""

_ORDER = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)


def dtype_of(code: Any) -> str:
    """The name of a dtype's code; raises ImportFailed for one that we do not carry."""
    if code not in CODES:
        raise ImportFailed(
            f"the dtype with torch's code {code} is not supported", reason="unsupported_dtype"
        )
    return CODES[code]


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats: an operand of a lower category never changes a
    higher one's dtype.
    """
    return 0 if dtype == "bool" else 1 if dtype.startswith(("int", "uint")) else 2


def promote(left: str, right: str) -> str:
    """torch.promote_types."""
    if left == right:
        return left
    if {left, right} == {"float16", "bfloat16"}:
        return "float32"
    if category(left) == category(right) == 1 and left.startswith("u") != right.startswith("u"):
        return _mixed(*((left, right) if left.startswith("u") else (right, left)))
    if "uint" in left[:4] and "uint" in right[:4]:
        return max(left, right, key=lambda name: int(name.removeprefix("uint")))
    if category(left) != category(right):
        return left if category(left) > category(right) else right
    return max(left, right, key=_ORDER.index)


def _mixed(unsigned: str, signed: str) -> str:
    if unsigned != "uint8":
        raise ImportFailed(
            f"torch does not promote {unsigned} with {signed}", reason="unsupported_dtype"
        )
    return "int16" if signed == "int8" else signed


def result_type(tensors: Iterable[tuple[str, int]], numbers: Iterable[str]) -> str:
    """The dtype of an operation: of tensors (dtype, rank) and of plain numbers ("bool", "int64" or
    "float64").

    Tensors with axes decide before those without, which decide before numbers; a lower group counts
    only where its category is higher (ATen's result_type).
    """
    pairs = list(tensors)
    groups = [
        [dtype for dtype, rank in pairs if rank > 0],
        [dtype for dtype, rank in pairs if rank == 0],
        [DEFAULT_FLOAT if name == "float64" else name for name in numbers],
    ]
    result: str | None = None
    for group in groups:
        joined: str | None = None
        for dtype in group:
            joined = dtype if joined is None else promote(joined, dtype)
        if joined is not None:
            result = (
                joined
                if result is None
                else promote(result, joined)
                if category(joined) > category(result)
                else result
            )
    assert result is not None
    return result
