"""Parts of a decoder that a file holds as rows of one matrix, one below the other."""

from collections.abc import Mapping

from compiler.ir.decoders.design import Design, Part


def find_rows(
    names: Mapping[Part, str], design: Design, part: Part, rows: int
) -> tuple[str, int, int]:
    """The name of the matrix that holds a part, its first row there, and the rows of all: parts
    share a matrix that have the same name, in the order of `names`.
    """
    name = names[part]
    shared = [one for one, other in names.items() if other == name]
    if len(shared) == 1:
        return name, 0, rows
    few = design.groups * design.size
    sizes = {
        Part.QUERY: design.heads * design.size,
        Part.KEY: few,
        Part.VALUE: few,
        Part.GATE: design.hidden,
        Part.UP: design.hidden,
    }
    first = sum(sizes[one] for one in shared[: shared.index(part)])
    return name, first, sum(sizes[one] for one in shared)
