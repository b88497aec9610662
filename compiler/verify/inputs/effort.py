"""How much a run has to do at given dims, by the counts of its kernels."""

from collections.abc import Iterable, Mapping
from typing import Any

from relaxd.contract.dims.axes import Axis

Note = Mapping[str, Any]
"""A kernel of kernels.json."""

_FLOPS_A_BYTE = 8
"""Operations in the time that a byte takes: a core has some 80 GFLOP/s beside 10 GB/s."""


def work_at(note: Note, dims: Mapping[str, int]) -> tuple[int, int] | None:
    """Operations and bytes of a kernel in one run; None where the note does not tell, or by a dim
    whose value only the run knew.
    """
    if "flops" not in note:
        return None
    try:
        flops, moved = (Axis(note[name]).evaluate(dims) for name in ("flops", "bytes"))
    except (KeyError, ZeroDivisionError):
        return None
    return flops, moved


def effort(notes: Iterable[Note], dims: Mapping[str, int]) -> int:
    """Bytes that the kernels move, with their operations counted in bytes; those kernels are left
    out of which the notes do not tell.
    """
    known = [work for note in notes if (work := work_at(note, dims)) is not None]
    return sum(moved + flops // _FLOPS_A_BYTE for flops, moved in known)
