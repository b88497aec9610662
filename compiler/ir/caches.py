"""Which inputs state how far an attention's cache is filled: sample inputs of them must agree."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from relaxd.contract.bundle.state import Part
from relaxd.contract.dims.axes import Axis


@dataclass(frozen=True)
class CacheUse:
    """One form in which attention uses a cache. entries: of the batch; rows: new tokens; room: keys
    that the past has space for; total: the greatest number of keys with the new ones, None where an
    input states it.

    parts: inputs by name.
    """

    entries: Axis
    rows: Axis
    room: Axis
    total: Axis | None
    parts: Mapping[str, Part]


def merge_uses(uses: Iterable[CacheUse], inputs: Collection[str]) -> tuple[CacheUse, ...]:
    """The uses, those of equal axes as one, without parts that are no inputs."""
    by_axes: dict[tuple[Axis | None, ...], CacheUse] = {}
    for use in uses:
        key = (use.entries, use.rows, use.room, use.total)
        earlier = by_axes.get(key, replace(use, parts={}))
        own = {name: part for name, part in use.parts.items() if name in inputs}
        by_axes[key] = replace(use, parts={**earlier.parts, **own})
    return tuple(by_axes.values())
