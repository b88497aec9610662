"""Virtual machines over one library and one copy of its weights: as many as calls run at once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaxd.loader.engines.engine import Watch


class Machines:
    """Lends a virtual machine to each call, the last one used first, and makes one where none is
    free.

    A machine serves one call at a time. Taking one from a list and giving it back are single steps
    of the interpreter, so that calls need no lock.
    """

    def __init__(self, make: Callable[[], tuple[Any, Callable[..., Any]]]) -> None:
        self._make = make
        self._idle = [make()[1]]

    def __call__(self, *tensors: Any) -> Any:
        """The result of the library's entry function."""
        try:
            function = self._idle.pop()
        except IndexError:
            function = self._make()[1]
        try:
            return function(*tensors)
        finally:
            self._idle.append(function)

    def watch_kernels(self, watch: "Watch") -> "Machines":
        """Machines over the same library and weights that report each call they make."""
        from relaxd.loader.tensors.ffi import tvm_ffi

        def report(function: Any, symbol: str, before: bool, result: Any, *values: Any) -> int:
            watch(symbol, before)
            return 0

        def make() -> tuple[Any, Callable[..., Any]]:
            machine, function = self._make()
            machine["set_instrument"](tvm_ffi.convert(report))
            return machine, function

        return Machines(make)

    @property
    def idle(self) -> int:
        """How many machines wait for a call; all that were made, while none runs."""
        return len(self._idle)
