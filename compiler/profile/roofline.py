"""How near a kernel comes to what the machine can do: Williams, Waterman and Patterson's roofline
model (2009).
"""

from collections.abc import Mapping

from compiler.isolation.step import Record
from compiler.verify.inputs.effort import Note, work_at

_FLOAT = "float32"
"""What the machine's peak is measured in."""
_INT8 = "int8"
"""The family of kernels that compute in int8 what the model states in float32."""


def rate_row(row: Record, note: Note | None, dims: Mapping[str, int], machine: Record) -> Record:
    """A row of `KernelTimes` with what its kernel's note and the machine's peaks tell of it; as it
    is where the note's counts do not hold for the run.
    """
    work = work_at(note, dims) if note else None
    if note is None or work is None or row["calls"] % note["calls"]:
        return row
    if row["calls"] != note["calls"] and note["calls"] != 1:
        return row
    times = row["calls"] // note["calls"]
    flops, moved, seconds = work[0] * times, work[1] * times, row["ms"] / 1e3
    if not seconds:
        return {**row, "flops": flops, "bytes": moved}
    return {
        **row,
        "flops": flops,
        "bytes": moved,
        "gflops": round(flops / seconds / 1e9, 3),
        "gb_s": round(moved / seconds / 1e9, 3),
        **_bound(flops, moved, seconds, _dtype(note), machine),
    }


def _dtype(note: Note) -> str:
    """The type that the kernel computes in; its work was counted before it was quantized."""
    return _INT8 if note.get("family") == _INT8 else str(note.get("computes", ""))


def _bound(flops: int, moved: int, seconds: float, dtype: str, machine: Record) -> Record:
    gflops, gb_s = machine.get("peak_gflops"), machine.get("peak_gb_s")
    if not gflops or not gb_s:
        return {}
    computing, moving = flops / (gflops * 1e9), moved / (gb_s * 1e9)
    if seconds < moving:
        # Memory cannot have delivered it: it was in the caches, where this roof does not hold.
        bound, least = "cache", computing
    else:
        bound, least = ("memory", moving) if moving >= computing else ("compute", computing)
    # Instructions for a narrower type pass the peak of float32: it is no measure for them.
    if bound != "memory" and (dtype not in ("", _FLOAT) or least > seconds):
        return {"bound": bound}
    return {"bound": bound, "percent_of_peak": round(100 * least / seconds, 1)}
