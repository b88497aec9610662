"""The kernels of a profiled run as a few rows that people read."""

from collections.abc import Sequence

from relaxd.contract.profile import KernelTime

MACHINE = "vm."
"""What the names of the virtual machine's own functions begin with."""


def gathered(rows: Sequence[KernelTime], most: int) -> list[KernelTime]:
    """The longest kernels first; what the virtual machine does by itself is one row, and so is what
    would come after `most` rows.
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
