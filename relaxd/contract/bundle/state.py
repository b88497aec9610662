"""In-place KV caches: buffers that the caller of a library owns and that each call extends."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from relaxd.contract.dims.names import LONGEST_NAME
from relaxd.contract.documents import known_keys, manifest_error, mapping, sequence, text
from relaxd.contract.options import CacheForm


class Part(StrEnum):
    """The meaning of an input for a KV cache: the mask of each batch entry's keys; the number of
    its keys with the new ones; the position of its last key; the greatest number of keys of any
    entry; the positions of the new tokens; or, by the input's length, the number of cached tokens.
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
    of INT8 with the bytes of a scale behind it (`relaxd.contract.bundle.byte_rows`).
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
        entries = mapping(document, "state")
        known_keys(entries, frozenset(field.name for field in fields(cls)), "state")
        parts = mapping(entries["parts"], "state.parts")
        if type(entries["ragged"]) is not bool or not set(parts.values()) <= set(Part):
            raise manifest_error("the state is of a kind that this release does not support")
        return cls(
            tuple(_cache(entry) for entry in sequence(entries["caches"], "state.caches")),
            text(entries["capacity"], "state.capacity", 256),
            text(entries["rows"], "state.rows", 2 * LONGEST_NAME + 2),
            text(entries["past"], "state.past", 256),
            entries["ragged"],
            {name: Part(part) for name, part in parts.items()},
            _stored(entries.get("stored")),
        )


def _stored(value: Any) -> CacheForm | None:
    if value is not None and value not in list(CacheForm):
        raise manifest_error("the caches are stored in a form that this relaxd does not know")
    return None if value is None else CacheForm(value)


def _cache(document: Any) -> Cache:
    fields = mapping(document, "a cache")
    known_keys(fields, frozenset({"input", "output"}), "a cache")
    return Cache(*(text(fields[name], f"a cache's {name}") for name in ("input", "output")))
