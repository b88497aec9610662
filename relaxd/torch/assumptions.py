"""The sizes that torch assumed while it traced, and for which line of the user's code."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from relaxd.torch.sources import Source, current_source

_SIZE = re.compile(r"^L(?P<keys>.*)\.size\(\)\[(?P<axis>\d+)\]$")
_FLAT = re.compile(r"^\['flat_args'\]\[(\d+)\]$")
_KEY = re.compile(r"\[(?:'([^']*)'|(\d+))\]|\.(\w+)")


@dataclass(frozen=True)
class Assumption:
    """condition: on sizes, in dims; dims: those in it; size: that it fixes its only dim to."""

    condition: str
    dims: tuple[str, ...]
    size: int | None
    source: Source | None

    @property
    def text(self) -> str:
        """A sentence for people."""
        name = self.dims[0]
        what = f"dim {name} can only be {self.size}" if self.size is not None else self.condition
        return f"{what}, at {self.source.text}" if self.source else what


@contextmanager
def collect_assumptions(axes: Mapping[str, Sequence[str]]) -> Iterator[list[Assumption]]:
    """Within the body, collect what torch assumes of declared dims.

    axes: the axes of each input in the order of the call, by its name: a dim's name, or a size.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    collected: list[Assumption] = []
    original = getattr(ShapeEnv, "_log_guard", None)
    if original is None:  # a torch without it exports, and its errors name no line
        yield collected
        return

    def log(env: Any, prefix: str, guard: Any, *rest: Any, **more: Any) -> Any:
        collected.extend(_read(env, guard, axes))
        return original(env, prefix, guard, *rest, **more)

    ShapeEnv._log_guard = log
    try:
        yield collected
    finally:
        ShapeEnv._log_guard = original


def _read(env: Any, guard: Any, axes: Mapping[str, Sequence[str]]) -> Iterator[Assumption]:
    names: dict[str, str] = {}
    sources = getattr(env, "var_to_sources", None) or getattr(env, "backed_var_to_sources", {})
    for symbol in sorted(guard.free_symbols, key=str):
        for source in sources.get(symbol, ()):
            name = source.name if isinstance(source.name, str) else source.name()
            dim = _dim_of(name, axes)
            if dim is not None:
                names[str(symbol)] = dim
                break
    if not names:
        return
    condition = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(guard))
    dims = tuple(dict.fromkeys(names.values()))
    size = re.fullmatch(r"Eq\(\w+, (\d+)\)", str(guard))
    fixed = int(size[1]) if size and len(dims) == 1 else None
    yield Assumption(condition, dims, fixed, current_source())


def _dim_of(source: str, axes: Mapping[str, Sequence[str]]) -> str | None:
    """The dim of `L['x'].size()[0]`; None for an axis that has none."""
    match = _SIZE.match(source)
    if match is None:
        return None
    flat = _FLAT.match(match["keys"])
    if flat:
        shapes = list(axes.values())
        shape = shapes[int(flat[1])] if int(flat[1]) < len(shapes) else ()
    else:
        keys = ["".join(part) for part in _KEY.findall(match["keys"])]
        shape = axes.get("_".join(keys), ())
    axis = int(match["axis"])
    return shape[axis] if axis < len(shape) and not shape[axis].isdigit() else None
