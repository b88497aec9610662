"""Operands of integer divisions, and what numpy makes of them."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def operands(dtype: str, count: int) -> tuple[Array, Array]:
    """Numbers of the whole range and divisors other than 0, the least one and -1 among them."""
    info, draw = np.iinfo(dtype), np.random.default_rng(count)
    x, y = draw.integers(info.min, info.max, (2, count), dtype=dtype, endpoint=True)
    y[::3] = y[::3] % 7 + 1
    y[y == 0] = 3
    edges: list[tuple[int, int]] = [(info.min, 3), (info.max, 1)]
    if info.min:
        edges += [(info.min, -1), (info.min, info.min), (info.max, -1), (5, -1), (-7, 2), (7, -2)]
    for i, (p, q) in enumerate(edges[:count]):
        x[i], y[i] = p, q
    return x, y


def by_numpy(x: Array, y: Array) -> dict[str, Array]:
    """Quotients and remainders, wrapped around where the least number is divided by -1."""
    with np.errstate(all="ignore"):
        down, rest, short = np.floor_divide(x, y), np.mod(x, y), np.fmod(x, y)
    quotient = down + ((short != 0) & ((x < 0) != (y < 0))).astype(x.dtype)
    return {"div": quotient, "mod": rest, "fmod": short}
