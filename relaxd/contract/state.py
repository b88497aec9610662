"""What a library keeps between calls: caches that its caller owns and that each call writes in
place.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from relaxd.contract.documents import known_keys, malformed, mapping, sequence, text
from relaxd.contract.names import LONGEST_NAME
from relaxd.contract.options import CacheForm


class Part(StrEnum):
    """What an input states of a cache: for each batch entry ones where a key is, the number of its
    keys with the new ones, or the place of the last; the greatest number of keys in any entry; the
    places of the new tokens; by its own length, how many rows the cache held before.
    """

    MASK = "mask"
    LENGTH = "length"
    LAST = "last"
    TOTAL = "total"
    POSITIONS = "positions"
    PAST = "past"


@dataclass(frozen=True)
class Cache:
    """One buffer, an input that the library writes rows of; `output` is what the model calls it
    with the new rows, and the library does not give.
    """

    input: str
    output: str


@dataclass(frozen=True)
class State:
    """The caches of a library. All have the shape [entries, heads, capacity, size].

    capacity: the dim of their rows; rows: the axis of the new tokens of a call, a dim or 1.
    past: the dim that counted a cache's rows in the model.
    ragged: whether entries of a batch may be filled to different lengths.
    parts: what other inputs state of the caches, by name.
    stored: what rows that the model has as float32 are stored as; None where every cache has the
    model's own dtype. The dtype of each is that of its input. `size` is that of the model's rows,
    of INT8 with the bytes of a scale behind it (`relaxd.contract.byte_rows`).
    """

    caches: tuple[Cache, ...]
    capacity: str
    rows: str
    past: str
    ragged: bool
    parts: Mapping[str, Part]
    stored: CacheForm | None = None

    @property
    def inputs(self) -> frozenset[str]:
        """The caches' names among the library's inputs."""
        return frozenset(cache.input for cache in self.caches)

    def to_json(self) -> dict[str, Any]:
        """The manifest's form; without `stored` where it is None, as older bundles have it."""
        document = asdict(self)
        if self.stored is None:
            del document["stored"]
        return {
            **document,
            "caches": [asdict(cache) for cache in self.caches],
            "parts": {name: part.value for name, part in self.parts.items()},
        }

    @classmethod
    def from_json(cls, document: Any) -> "State":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        found = mapping(document, "state")
        known_keys(found, frozenset(field.name for field in fields(cls)), "state")
        parts = mapping(found["parts"], "state.parts")
        if type(found["ragged"]) is not bool or not set(parts.values()) <= set(Part):
            raise malformed("the state is none that this relaxd knows")
        return cls(
            tuple(_cache(entry) for entry in sequence(found["caches"], "state.caches")),
            text(found["capacity"], "state.capacity", 256),
            text(found["rows"], "state.rows", 2 * LONGEST_NAME + 2),
            text(found["past"], "state.past", 256),
            found["ragged"],
            {name: Part(part) for name, part in parts.items()},
            _stored(found.get("stored")),
        )


def _stored(value: Any) -> CacheForm | None:
    if value is not None and value not in list(CacheForm):
        raise malformed("the caches are stored in a form that this relaxd does not know")
    return None if value is None else CacheForm(value)


def _cache(document: Any) -> Cache:
    found = mapping(document, "a cache")
    known_keys(found, frozenset({"input", "output"}), "a cache")
    return Cache(*(text(found[name], f"a cache's {name}") for name in ("input", "output")))
