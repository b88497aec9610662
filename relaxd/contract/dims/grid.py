"""The grid that a profile covers: the values of each dim at which every combination is timed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.dims.names import objection_to
from relaxd.errors import DeclarationError

AUTO = "auto"
MOST_POINTS = 64
_EXAMPLE = 'as in {"grid": "auto"} or {"grid": {"batch": [1, 4, 16], "seq": [16, 128, 512]}}'


@dataclass(frozen=True)
class ProfileOptions:
    """grid: `auto`, or the values of some dims in ascending order; the others keep the value that
    is favoured.
    """

    grid: str | tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def read(cls, value: Any) -> "bool | ProfileOptions":
        """The option `profile`: true, false or `{"grid": ...}`; raises DeclarationError."""
        if isinstance(value, bool | ProfileOptions):
            return value
        if not isinstance(value, Mapping):
            raise _wrong(f"option 'profile' must be true, false or an object, not {value!r}")
        if unknown := sorted(value.keys() - {"grid"}):
            raise _wrong(f"option 'profile' has the unknown key {unknown[0]!r}")
        grid = value.get("grid")
        return True if grid is None else cls(_grid(grid))

    def to_json(self) -> dict[str, Any]:
        """Equal options give equal documents."""
        if isinstance(self.grid, str):
            return {"grid": self.grid}
        return {"grid": {name: list(values) for name, values in self.grid}}


def _grid(value: Any) -> str | tuple[tuple[str, tuple[int, ...]], ...]:
    if value == AUTO:
        return AUTO
    if not isinstance(value, Mapping) or not value:
        raise _wrong(f"the grid must be 'auto' or values by dim, not {value!r}", "grid")
    grid = tuple((str(name), _values(str(name), value[name])) for name in sorted(value))
    points = math.prod(len(values) for _, values in grid)
    if points > MOST_POINTS:
        raise _wrong(f"the grid has {points} points, more than {MOST_POINTS}", "grid")
    return grid


def _values(name: str, value: Any) -> tuple[int, ...]:
    if objection_to(name):
        raise _wrong(f"the grid names {name!r}, which cannot be the name of a dim", "grid")
    values = [value] if type(value) is int else value
    if (
        not isinstance(values, list | tuple)
        or not values
        or any(type(one) is not int or not 0 <= one < 2**62 for one in values)
    ):
        raise _wrong(f"the grid's values of {name!r} must be whole numbers, got {value!r}", "grid")
    return tuple(sorted(set(values)))


def _wrong(message: str, part: str = "") -> DeclarationError:
    field = f"options.profile.{part}" if part else "options.profile"
    return DeclarationError(message, field=field, hint=_EXAMPLE)
