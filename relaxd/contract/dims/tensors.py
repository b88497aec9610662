"""Tensor specs: name, dtype and shape of axis expressions, as in `ids=int64[batch,seq]`."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from relaxd.contract.dims.axes import Axis, axes_of
from relaxd.contract.dims.names import QUOTED
from relaxd.errors import DeclarationError, suggest

STORAGE = {
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
    "float4_e2m1fn": "uint8",
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
}
"""Element types that numpy lacks, by ml_dtypes' names, and what holds one element in a byte: the
bit pattern of a float, the value of an integer."""

DTYPES = frozenset(
    {
        *STORAGE,
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    }
)

TEXT = "string"
"""The dtype of strings, which no library computes with: steps around it do."""

_SPEC = re.compile(
    rf"\s*(?P<dtype>[a-z0-9_]+)\s*\[(?P<axes>(?:[^\[\]\"]|{QUOTED.pattern})*)\]\s*", re.DOTALL
)


def storage_of(dtype: str) -> str:
    """The dtype of the bytes that hold elements of `dtype` in a library and in files of weights."""
    return STORAGE.get(dtype, dtype)


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: `shape` is a tuple of Axis; dtype is one of DTYPES, or TEXT for a
    caller's strings.

    default: the number that fills an input of fixed shape where a call leaves it out; None where
    every call must give the input.
    """

    name: str
    dtype: str
    shape: tuple[Axis, ...]
    default: int | float | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise DeclarationError(
                "an input has an empty name", field="inputs", hint="as in ids=int64[batch,seq]"
            )
        if self.dtype not in DTYPES and self.dtype != TEXT:
            raise DeclarationError(
                f"input {self.name!r}: unknown dtype {self.dtype!r}",
                field=f"inputs.{self.name}",
                hint=suggest(self.dtype, DTYPES, f"one of {', '.join(sorted(DTYPES))}"),
            )

    @property
    def text(self) -> str:
        """The wire form without the name: `int64[batch,seq]`."""
        return f"{self.dtype}[{','.join(axis.text for axis in self.shape)}]"

    def to_json(self) -> dict[str, Any]:
        """The manifest's form: fixed axes as integers, others as strings."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": [axis.text if axis.size is None else axis.size for axis in self.shape],
            **({} if self.default is None else {"default": self.default}),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "TensorSpec":
        """Inverse of `to_json`."""
        return cls(
            document["name"],
            document["dtype"],
            tuple([Axis.parse(str(axis)) for axis in document["shape"]]),
            document.get("default"),
        )

    @classmethod
    def of(cls, name: str, value: Any) -> "TensorSpec":
        """Parse `float32[n,3,48,w]`, or take a TensorSpec as it is; `float32[]` is a scalar."""
        if isinstance(value, TensorSpec):
            return value if value.name == name else dataclasses.replace(value, name=name)
        if not isinstance(value, str):
            raise DeclarationError(
                f"input {name!r} must be a string, not {value!r}",
                field=f"inputs.{name}",
                hint="as in int64[batch,seq]",
            )
        match = _SPEC.fullmatch(value)
        if not match:
            raise DeclarationError(
                f"input {name!r}: cannot read {value!r}",
                field=f"inputs.{name}",
                hint="as in int64[batch,seq] or float32[n,3,2*h]",
            )
        return cls(name, match["dtype"], axes_of(split_axes(match["axes"]), f"inputs.{name}"))

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


def split_axes(axes: str) -> list[str]:
    """Split at commas outside of parentheses and quotes: `n,min(a,b)` has two axes."""
    parts, depth = [""], 0
    for piece in re.split(f"({QUOTED.pattern})", axes):
        for char in [piece] if piece.startswith('"') else piece:
            depth += (char == "(") - (char == ")")
            if char == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += char
    return [] if len(parts) == 1 and not parts[0].strip() else parts
