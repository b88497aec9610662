"""The points of a profile's grid."""

from collections.abc import Iterable, Sequence
from itertools import product

from compiler.verify.inputs.points import Point, bytes_of, choose_favoured, ladders
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.grid import MOST_POINTS, ProfileOptions
from relaxd.contract.dims.names import option_name, quote_name
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import DeclarationError, suggest

_MOST_VALUES = 12


def grid_points(
    options: ProfileOptions, inputs: Sequence[TensorSpec], dims: Iterable[Dim]
) -> tuple[Point, ...]:
    """Every combination of the grid's values, cheapest first; raises DeclarationError for a dim
    that no input carries, or a value that the dim does not admit.
    """
    table = {dim.name: dim for dim in dims}
    middle = choose_favoured(inputs, table.values())
    varied = (
        _auto(inputs, [table[name] for name in middle])
        if isinstance(options.grid, str)
        else dict(options.grid)
    )
    for name, values in varied.items():
        _check(name, values, [table[known] for known in middle])
    points = [
        Point("grid", {**middle, **dict(zip(varied, values, strict=True))})
        for values in product(*varied.values())
    ]
    ordered = sorted(points, key=lambda point: bytes_of(point, inputs))
    return tuple(Point(f"grid-{index}", point.dims) for index, point in enumerate(ordered, 1))


def _auto(inputs: Sequence[TensorSpec], dims: Sequence[Dim]) -> dict[str, tuple[int, ...]]:
    free = [dim for dim in dims if not dim.fixed]
    count = min(int(MOST_POINTS ** (1 / max(len(free), 1)) + 1e-9), _MOST_VALUES)
    if count < 2:
        raise DeclarationError(
            f"{len(free)} dims are too many to vary together",
            field="options.profile.grid",
            hint=f"name the values of a few, as in --grid {option_name(free[0].name)}=1,16,256",
        )
    values = ladders(inputs, dims, count)
    return {dim.name: values[dim.name] for dim in free}


def _check(name: str, values: Iterable[int], dims: Sequence[Dim]) -> None:
    dim = next((dim for dim in dims if dim.name == name), None)
    if dim is None:
        known = ", ".join(quote_name(dim.name) for dim in dims) or "none"
        raise DeclarationError(
            f"the grid names {name!r}, but no input has such a dim",
            field=f"options.profile.grid.{name}",
            hint=suggest(name, [dim.name for dim in dims], f"dims of the inputs: {known}"),
        )
    for value in values:
        if not dim.admits(value):
            raise DeclarationError(
                f"the grid has {quote_name(name)}={value}, which is outside of the dim's range",
                field=f"options.profile.grid.{name}",
                hint=f"it was declared as {dim.describe()}",
            )
