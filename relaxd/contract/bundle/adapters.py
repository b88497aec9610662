"""Low-rank adapters beside a model: the inputs of a library that hold those that are loaded."""

from dataclasses import asdict, dataclass
from typing import Any

from relaxd.contract.documents import (
    integer,
    known_keys,
    manifest_error,
    mapping,
    sequence,
    text,
)
from relaxd.contract.options import MOST_RANK


@dataclass(frozen=True)
class Module:
    """A matmul with adapters. down: the input float32 [adapters, rank, columns of x]; up: float32
    [adapters, rank, columns]; the library adds `scale` * x @ down.T @ up.

    scale: a power of two, so that drawn numbers of unit size change the result a little.
    """

    layer: int
    name: str
    down: str
    up: str
    scale: float


@dataclass(frozen=True)
class Adapters:
    """The adapters of a library. index: the input int32 [batch], 0 where a sequence has none, else
    the number of its adapter from 1 on. ranks: the input int32 [adapters, modules], how many rows
    of `down` and `up` each adapter has for each of the modules, 0 where it changes none.

    neighbours: pairs of a head's rows that rotate lie beside each other, not half a head apart.
    heads, groups: of queries, and of keys and values.
    """

    index: str
    ranks: str
    rank: int
    modules: tuple[Module, ...]
    heads: int
    groups: int
    neighbours: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that hold adapters."""
        return tuple(name for module in self.modules for name in (module.down, module.up))

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {**asdict(self), "modules": [asdict(module) for module in self.modules]}

    @classmethod
    def from_json(cls, document: Any) -> "Adapters":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        entries = mapping(document, "adapters")
        known_keys(entries, frozenset(cls.__dataclass_fields__), "adapters")
        if type(entries["neighbours"]) is not bool:
            raise manifest_error("the adapters are of a kind that this release does not support")
        return cls(
            text(entries["index"], "adapters.index"),
            text(entries["ranks"], "adapters.ranks"),
            integer(entries["rank"], "adapters.rank", MOST_RANK),
            tuple(_module(entry) for entry in sequence(entries["modules"], "adapters.modules")),
            integer(entries["heads"], "adapters.heads", 1 << 20),
            integer(entries["groups"], "adapters.groups", 1 << 20),
            entries["neighbours"],
        )


def _module(document: Any) -> Module:
    fields = mapping(document, "a module with adapters")
    known_keys(fields, frozenset(Module.__dataclass_fields__), "a module with adapters")
    name, down, up = (text(fields[key], f"a module's {key}") for key in ("name", "down", "up"))
    scale = fields["scale"]
    if type(scale) is not float or not 0 < scale <= 1:
        raise manifest_error("the scale of a module with adapters is no number up to 1")
    return Module(integer(fields["layer"], "a module's layer", 1 << 20), name, down, up, scale)
