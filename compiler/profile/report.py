"""Completes what a profile measured: the machine's peaks, each kernel's work and how near it comes
to them, and the cost model of a grid.
"""

from collections.abc import Mapping, Sequence

from compiler.isolation.step import Record
from compiler.profile.cost import fit
from compiler.profile.roofline import rate_row
from compiler.targets import Target
from compiler.verify.inputs.effort import Note, work_at

_NO_CODE = "view"
"""The family of programs that no library contains."""


def complete(profile: Record, notes: Sequence[Note], target: Target, *, with_cost: bool) -> Record:
    """notes: the kernels of kernels.json. Peaks are measured of processors only."""
    machine = profile.get("machine", {})
    if machine and target.device is None:
        machine = {**machine, **_peaks(machine["threads"], target)}
    points = [_with_work(point, notes) for point in profile["points"]]
    done = {**profile, "machine": machine, "points": points}
    if "operators" in profile:
        done["operators"] = _rate(profile["operators"], notes, machine)
    if with_cost:
        done["cost"] = fit([(point["dims"], point["median_ms"]) for point in points])
    return done


def _peaks(threads: int, target: Target) -> Record:
    # TVM takes a second to import.
    from compiler.profile.peaks import measured_peaks

    peaks = measured_peaks(threads, target)
    return {
        "core_gflops": round(peaks.core_gflops, 1),
        "peak_gflops": round(peaks.gflops, 1),
        "peak_gb_s": round(peaks.gb_s, 1),
    }


def _with_work(point: Record, notes: Sequence[Note]) -> Record:
    """The operations and bytes of all kernels together, where each of them tells."""
    work = [work_at(note, point["dims"]) for note in notes if note.get("family") != _NO_CODE]
    known = [counts for counts in work if counts is not None]
    if not known or len(known) < len(work):
        return point
    flops = sum(counts[0] for counts in known)
    rate = {"gflops": round(flops / point["median_ms"] / 1e6, 2)} if point["median_ms"] else {}
    return {**point, "flops": flops, "bytes": sum(counts[1] for counts in known), **rate}


def _rate(operators: Record, notes: Sequence[Note], machine: Mapping[str, object]) -> Record:
    by_name = {note["name"]: note for note in notes}
    dims = operators["dims"]
    rows = [
        rate_row(row, by_name.get(row["name"]), dims, dict(machine)) for row in operators["rows"]
    ]
    return {**operators, "rows": rows}
