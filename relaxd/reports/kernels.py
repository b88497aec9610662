"""The kernels of a profiled run as a few rows that people read."""

from collections.abc import Sequence

from relaxd.contract.bundle.profile import KernelTime

MACHINE = "vm."
"""The prefix of the names of the virtual machine's own functions."""


def rank_kernels(rows: Sequence[KernelTime], most: int) -> list[KernelTime]:
    """Sort kernels by time, longest first; the virtual machine's own functions are merged into one
    row, and so are all after the first `most` rows.
    """
    own = [row for row in rows if not row.name.startswith(MACHINE)]
    machine = [row for row in rows if row.name.startswith(MACHINE)]
    ranked = sorted([*own, *_summed("virtual machine", machine)], key=lambda row: -row.share)
    rest = ranked[most:]
    return [*ranked[:most], *_summed(f"{len(rest)} more", rest)]


def _summed(name: str, rows: Sequence[KernelTime]) -> list[KernelTime]:
    if not rows:
        return []
    return [
        KernelTime(
            name,
            sum(row.calls for row in rows),
            sum(row.ms for row in rows),
            sum(row.share for row in rows),
        )
    ]
