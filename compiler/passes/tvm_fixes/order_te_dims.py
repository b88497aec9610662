"""Makes the tensor programs that TVM builds from TE the same in every process.

A program gets the dims that no tensor binds as parameters of their own. TVM collects them in a
Python set of objects, whose order follows their addresses: equal requests would get libraries of
different bytes, and equal layers programs that are not recognised as equal.

Upstream: no report was found. This can go when `tvm.relax.utils.gen_call_tir_inputs` collects dims
in order.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tvm.relax import utils


class OrderedSet(dict[Any, None]):
    """The operations of a set that TVM's collection uses, in the order in which elements came."""

    def add(self, element: Any) -> None:
        """Adds one element."""
        self[element] = None

    def update(self, elements: Iterable[Any]) -> None:  # type: ignore[override]
        """Adds the elements in order."""
        super().update(dict.fromkeys(elements))

    def __sub__(self, other: "OrderedSet") -> "OrderedSet":
        return OrderedSet(dict.fromkeys(element for element in self if element not in other))


@contextmanager
def dims_in_order() -> Iterator[None]:
    """Has TVM collect dims in the order of their use, while the block runs."""
    # The only sets in that module are the two of dims, so the name stands for ours in it.
    utils.set = OrderedSet
    try:
        yield
    finally:
        del utils.set
