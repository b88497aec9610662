"""How a C function that a tensor program became is called."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

import tvm


@dataclass(frozen=True)
class Task:
    """The iterations of a parallel loop as a function of their own: int64 of the first, int64 of
    where they end, scratch, `params`.

    launch: the function that the kernel calls for the loop, with the context, the int64 count of
    iterations and `params`. params: None for a pointer, the dtype of a number.
    """

    symbol: str
    launch: str
    params: tuple[str | None, ...]


@dataclass(frozen=True)
class Kernel:
    """A tensor program as a function: context and scratch where it `needs` them, `params`, and the
    extents `dims`, each an axis of a parameter: (position, axis), as a number of `dim_types`.

    scratch: bytes of working memory of each thread, as C in which `{d0}` stands for the first of
    dims and `{p2}` for the parameter at position 2.
    """

    symbol: str
    params: tuple[str | None, ...]
    dims: tuple[tuple[int, int], ...]
    dim_types: tuple[str, ...]
    scratch: str
    tasks: tuple[Task, ...]

    @property
    def needs_context(self) -> bool:
        """Checks that it starts threads."""
        return bool(self.tasks)

    @property
    def needs_scratch(self) -> bool:
        """Checks that it has working memory beyond the stack."""
        return self.scratch != "0"

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> "Kernel":
        """The kernel that `dataclasses.asdict` made the document of; raises KeyError, TypeError."""
        tasks = [Task(**{**task, "params": tuple(task["params"])}) for task in document["tasks"]]
        return cls(
            document["symbol"],
            tuple(document["params"]),
            tuple((position, axis) for position, axis in document["dims"]),
            tuple(document["dim_types"]),
            document["scratch"],
            tuple(tasks),
        )


def placeholders_of(dims: Iterable[Any], scalars: Mapping[Any, int]) -> dict[Any, str]:
    """The text that stands for each variable of a kernel in a size of its memory; scalars: the
    positions of parameters.
    """
    named = {var: f"{{p{position}}}" for var, position in scalars.items()}
    return named | {var: f"{{d{position}}}" for position, var in enumerate(dims)}


def fill_size(size: str, dims: Sequence[str], params: Sequence[str]) -> tuple[str, list[str]]:
    """A size of a kernel's memory, given the C texts of its dims and parameters, and those of them
    that stand in it.
    """
    texts = {f"d{position}": text for position, text in enumerate(dims)}
    texts |= {f"p{position}": text for position, text in enumerate(params)}
    named = [name for _, name, _, _ in Formatter().parse(size) if name]
    return size.format(**texts), [texts[name] for name in named]


def extents_of(params: Any) -> dict[Any, tuple[int, int]]:
    """By variable, the parameter and the axis of which it is the extent."""
    extents: dict[Any, tuple[int, int]] = {}
    for index, param in enumerate(params):
        for axis, extent in enumerate(getattr(param.ty, "shape", ())):
            if isinstance(extent, tvm.ir.Var):
                extents.setdefault(extent, (index, axis))
    return extents
