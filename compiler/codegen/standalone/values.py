"""Relax variables in the driver: C texts of addresses and extents."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm import relax


@dataclass(frozen=True)
class TensorValue:
    """data: an expression of type void *; shape: of type int64_t each."""

    data: str
    shape: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text of an rd_value."""
        return f"(rd_value){{{self.data}, {{{', '.join(self.shape) or '0'}}}}}"


@dataclass(frozen=True)
class ShapeValue:
    """Extents, the same whenever they are read."""

    extents: tuple[str, ...]


@dataclass(frozen=True)
class TupleValue:
    """A tuple of any of these."""

    fields: tuple["Value", ...]


@dataclass(frozen=True)
class StorageValue:
    """A place for tensors; number: of the driver's slot, or None where tensors get their own."""

    number: int | None


Value: TypeAlias = TensorValue | ShapeValue | TupleValue | StorageValue


def tensors_in(value: Value) -> Iterator[TensorValue]:
    """The tensors of a value, in order; shapes travel by other ways."""
    match value:
        case TensorValue():
            yield value
        case TupleValue():
            for field in value.fields:
                yield from tensors_in(field)


def count_tensors(ty: Any) -> int:
    """How many tensors a value of the type holds."""
    if isinstance(ty, relax.TupleType):
        return sum(map(count_tensors, ty.fields))
    return int(isinstance(ty, relax.TensorType))
