"""States ends of legal values in terms of the inputs' dims."""

from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import Facts
from compiler.ir.shapes.index_bounds import End
from compiler.ir.shapes.symbols import axis_of


def end_of(facts: Facts, extent: Extent, offset: int = 0) -> End:
    """An extent plus an offset in terms of the inputs' dims; where it depends on what a run alone
    knows, its least value.
    """
    moved = facts.simplify(ex.add(extent, offset))
    if isinstance(moved, int):
        return moved
    axis = None if facts.is_introduced(moved) else axis_of(moved)
    return facts.bounds(moved)[0] if axis is None else axis
