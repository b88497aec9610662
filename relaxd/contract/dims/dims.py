"""Dims: named symbols with a range, a multiple and a favoured value.

A declaration is parsed into a `Dim` once, where it enters (command line, Python or HTTP).
Analyzers, passes, manifest and loader work with that `Dim`; it takes its JSON form only between
processes.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.dims.names import objection_to, quote_name
from relaxd.errors import DeclarationError, suggest

_RANGE = re.compile(
    r"(?P<min>\d+)\s*(?P<colon>:\s*(?P<max>\d+)?)?\s*(%\s*(?P<multiple>\d+))?\s*(@\s*(?P<opt>\d+))?"
)


LARGEST = (1 << 63) - 1
"""The largest extent: compiled code counts in 64 bits."""
_DIGITS = 19
_KEYS = ("min", "max", "multiple", "opt")
_SHOWN = 200


@dataclass(frozen=True, order=True)
class Dim:
    """`name` takes every multiple of `multiple` in [min, max]; max None means unbounded; `opt` is
    the value to favour.
    """

    name: str
    min: int = 1
    max: int | None = None
    multiple: int = 1
    opt: int | None = None

    def __post_init__(self) -> None:
        for field in ("min", "max", "multiple", "opt"):
            value = getattr(self, field)
            if value is None and field in ("max", "opt"):
                continue
            if type(value) is not int:
                raise self._wrong(f"{field} must be an integer, not {value!r}")
            if value > LARGEST:
                raise self._wrong(f"{field} is larger than {LARGEST}")
        objection = objection_to(self.name) if isinstance(self.name, str) else "a name is a text"
        if objection:
            raise self._wrong(objection)
        if self.min < 0:
            raise self._wrong(f"min {self.min} is negative")
        if self.multiple < 1:
            raise self._wrong(f"multiple {self.multiple} is less than 1")
        if self.max is not None and self.min > self.max:
            raise self._wrong(f"min {self.min} is greater than max {self.max}")
        if self.max is not None and self.lowest > self.max:
            raise self._wrong(
                f"no multiple of {self.multiple} lies between {self.min} and {self.max}"
            )
        if self.opt is not None and not self.admits(self.opt):
            raise self._wrong(
                f"the favoured size {self.opt} is outside its range, {self.describe()}"
            )

    def _wrong(self, why: str) -> DeclarationError:
        return DeclarationError(
            f"dim {self.name!r}: {why}",
            field=f"dims.{self.name}",
            hint="as in batch=1:64, seq=8:512%8@128 or batch=4",
        )

    @property
    def lowest(self) -> int:
        """The smallest allowed value."""
        return -(-self.min // self.multiple) * self.multiple

    @property
    def highest(self) -> int | None:
        """The largest allowed value, None when unbounded."""
        return None if self.max is None else self.max // self.multiple * self.multiple

    @property
    def fixed(self) -> bool:
        """True if exactly one value is allowed."""
        return self.highest is not None and self.lowest == self.highest

    def admits(self, value: int) -> bool:
        """True if `value` is allowed."""
        return (
            self.min <= value
            and (self.max is None or value <= self.max)
            and value % self.multiple == 0
        )

    def describe(self) -> str:
        """The range in words, for error messages: `1 to 512, a multiple of 8`."""
        high = "any" if self.max is None else str(self.max)
        text = f"{self.min}" if self.min == self.max else f"{self.min} to {high}"
        return text if self.multiple == 1 else f"{text}, a multiple of {self.multiple}"

    def to_json(self) -> dict[str, int]:
        """The wire form without the name; fields at their default of None are left out."""
        most = {} if self.max is None else {"max": self.max}
        favoured = {} if self.opt is None else {"opt": self.opt}
        return {"min": self.min, **most, "multiple": self.multiple, **favoured}

    @classmethod
    def of(cls, name: str, value: Any) -> "Dim":
        """From an int, (min, max), the command line's `1:512%8@128`, a mapping of the wire form, or
        a Dim.
        """
        match value:
            case Dim():
                return value if value.name == name else dataclasses.replace(value, name=name)
            case bool():
                pass
            case int():
                return cls(name, value, value)
            case str():
                return cls._parse(name, value)
            case tuple() | list() if len(value) == 2:
                return cls(name, *value)
            case dict() | Mapping():  # the first by itself: it takes no search for subclasses
                unknown = value.keys() - set(_KEYS)
                if unknown:
                    raise DeclarationError(
                        f"dim {name!r}: unknown key {sorted(unknown)[0]!r}",
                        field=f"dims.{name}",
                        hint=suggest(str(unknown.pop()), _KEYS, f"known keys: {', '.join(_KEYS)}"),
                    )
                return cls(name, **value)
        raise DeclarationError(
            f"dim {name!r}: cannot read {value!r}",
            field=f"dims.{name}",
            hint="as in 4, (1, 64) or '1:512%8'",
        )

    @classmethod
    def _parse(cls, name: str, text: str) -> "Dim":
        match = _RANGE.fullmatch(text.strip())
        if not match or any(len(part or "") > _DIGITS for part in _numbers(match)):
            raise DeclarationError(
                f"dim {name!r}: cannot read {text[:_SHOWN]!r}",
                field=f"dims.{name}",
                hint="as in batch=1:64, seq=8:512%8@128 or batch=4",
            )
        low = int(match["min"])
        high = (int(match["max"]) if match["max"] else None) if match["colon"] else low
        return cls(
            name,
            low,
            high,
            int(match["multiple"] or 1),
            int(match["opt"]) if match["opt"] else None,
        )


def _numbers(match: re.Match[str]) -> tuple[str | None, ...]:
    return match.group("min", "max", "multiple", "opt")


def point_text(dims: Mapping[str, int]) -> str:
    """The sizes of one point as people read them: `batch=8 seq=128`."""
    return (
        " ".join(f"{quote_name(name)}={value}" for name, value in dims.items()) or "the only shape"
    )
