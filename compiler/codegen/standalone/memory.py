"""Where the tensors of a driver's function lie."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tvm
from tvm import relax
from tvm.tirx import IntImm

from compiler.codegen.standalone.model import Driver
from compiler.codegen.standalone.values import StorageValue
from compiler.tir.c_text import (
    element_bytes,
    expression,
    variables,
)
from compiler.tir.exprs import op_name
from compiler.tir.ranges import Range, is_small, range_of

ALLOCATE = "relax.memory.alloc_tensor"


class Memory(Protocol):
    """How a function gets memory; each method gives the address, and statements before it."""

    def storage(self, var: Any) -> StorageValue:
        """A place that the memory plan gives to several tensors."""

    def tensor(self, storage: StorageValue, size: "Size") -> tuple[list[str], str]:
        """A tensor of `size` bytes at a storage of the plan."""

    def allocate(self, var: Any, size: "Size") -> tuple[list[str], str]:
        """A tensor of `size` bytes with a place of its own."""


@dataclass(frozen=True)
class Size:
    """Bytes of a tensor: of its extents, and of an element."""

    extents: tuple[Any, ...]
    item: int

    @classmethod
    def of(cls, extents: Sequence[Any], dtype: str) -> "Size":
        """That of a tensor of the dtype."""
        return cls(tuple(extents), element_bytes(dtype))

    @property
    def dims(self) -> list[Any]:
        """The dims that it depends on."""
        return [dim for extent in self.extents for dim in variables(extent)]

    def is_small(self, ranges: Mapping[Any, Range]) -> bool:
        """True if it needs no check whatever the dims are."""
        return is_small((range_of(extent, ranges) for extent in self.extents), self.item)

    def text(self, names: Mapping[Any, str], ranges: Mapping[Any, Range]) -> str:
        """In C, checked where it is not small: the call ends where extents break the rule."""
        if self.is_small(ranges):
            return expression(_bytes_of(self.extents, self.item), names, ranges)
        return self.to_checked_c(names, ranges)

    def to_checked_c(self, names: Mapping[Any, str], ranges: Mapping[Any, Range]) -> str:
        """In C, checked."""
        shape = ", ".join(expression(extent, names, ranges) for extent in self.extents)
        return f"RD_SIZE({self.item}, {len(self.extents)}, (const int64_t[]){{{shape or '0'}}})"


def size_of(shape: Sequence[Any], dtype: str) -> Any:
    """Bytes of a tensor, as an expression of extents."""
    return _bytes_of(shape, element_bytes(dtype))


def _bytes_of(shape: Sequence[Any], item: int) -> Any:
    size: Any = IntImm("int64", item)
    for extent in shape:
        size = size * extent
    return tvm.sym.Analyzer().simplify(size)


def tenants(function: Any, extents: Callable[[Any], Sequence[Any]]) -> dict[Any, list[Size]]:
    """The sizes of the tensors that the memory plan puts into each storage of a function."""
    sizes: dict[Any, list[Size]] = {}

    def visit(node: Any) -> None:
        if op_name(node) == ALLOCATE:
            size = Size.of(extents(node.args[2]), str(node.args[3].value))
            sizes.setdefault(node.args[0], []).append(size)

    relax.analysis.post_order_visit(function, visit)
    return sizes


@dataclass
class ArenaMemory:
    """The memory of `main`: in the arena where bind knows the extents, else buffers that grow.

    bound: the dims that bind knows, by C name. results: by variable, the position of an output
    that it holds and nothing else holds before.
    """

    driver: Driver
    bound: Mapping[Any, str]
    text: Callable[[Size], str]
    tenants: Mapping[Any, list[Size]]
    results: dict[Any, int]

    def storage(self, var: Any) -> StorageValue:
        """A slot of the arena as large as its largest tensor; one that grows where bind does not
        know that.
        """
        sizes = self.tenants.get(var, [])
        if not sizes:
            return StorageValue(None)
        if all(self._known(size) for size in sizes):
            return StorageValue(self.driver.slot(largest(list(map(self.text, sizes)))))
        return StorageValue(-1 - self.driver.grower(var))

    def tensor(self, storage: StorageValue, size: Size) -> tuple[list[str], str]:
        """At the storage's place."""
        number = storage.number
        assert number is not None
        if number >= 0:
            return [], f"RD_AT({number})"
        slot = -1 - number
        return [grown(slot, self.text(size))], f"c->growing[{slot}].data"

    def allocate(self, var: Any, size: Size) -> tuple[list[str], str]:
        """An output where the caller wants it, or a place of its own."""
        if not self._known(size):
            self.driver.need_heap(var)
        if (output := self.results.pop(var, None)) is not None:
            call = f"rd_result(c, results, {output}, {self.text(size)})"
            return [f"  if ((status = {call})) return status;"], f"c->out[{output}]"
        if self._known(size):
            return [], f"RD_AT({self.driver.slot(self.text(size))})"
        slot = self.driver.grower(var)
        return [grown(slot, self.text(size))], f"c->growing[{slot}].data"

    def _known(self, size: Size) -> bool:
        return all(var in self.bound for var in size.dims)


def largest(sizes: list[str]) -> str:
    """The greatest of some C expressions."""
    first, *rest = dict.fromkeys(sizes)
    for size in rest:
        first = f"rd_max({first}, {size})"
    return first


def grown(slot: int, size: str) -> str:
    """The statement that makes a place large enough."""
    return f"  if ((status = rd_grow(&c->own, &c->growing[{slot}], {size}))) return status;"


@dataclass
class BlockMemory:
    """The memory of a private function: blocks that live as long as its call or its iteration."""

    driver: Driver
    text: Callable[[Size], str]

    def storage(self, var: Any) -> StorageValue:
        """Tensors of the plan get blocks of their own."""
        return StorageValue(None)

    def tensor(self, storage: StorageValue, size: Size) -> tuple[list[str], str]:
        """A block."""
        return self.allocate(None, size)

    def allocate(self, var: Any, size: Size) -> tuple[list[str], str]:
        """A block."""
        self.driver.need_heap(var)
        name = self.driver.fresh("t")
        lines = [
            f"  void *const {name} = rd_take(&c->own, {self.text(size)});",
            f"  if ({name} == NULL) return RELAXD_MEMORY;",
        ]
        return lines, name
