"""Adds to a profile which family scheduled each kernel of the library, and with which tile."""

from collections.abc import Sequence

from compiler.isolation.step import Record


def described(profile: Record, kernels: Sequence[Record]) -> Record:
    """Adds the notes of all kernels, and the family and tile of each operator that is a kernel."""
    notes = {kernel["name"]: kernel for kernel in kernels}
    described = {**profile, "kernels": list(kernels)}
    if "operators" in profile:
        rows = [_named(row, notes.get(row["name"])) for row in profile["operators"]["rows"]]
        described["operators"] = {**profile["operators"], "rows": rows}
    return described


def _named(row: Record, note: Record | None) -> Record:
    """Calls of the virtual machine's own functions have no note."""
    return row if note is None else {**row, "family": note["family"], "tile": note["tile"]}
