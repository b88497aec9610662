"""Helpers of benchmarks that write docs/performance/: its files, the machine, JSON a row a line,
and parts of a page between marks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler import targets
from compiler.profile.machine import processor
from relaxd.loader.machine.topology import usable_cores

FOLDER = Path(__file__).parents[1] / "docs/performance"

Document = dict[str, Any]


def machine() -> dict[str, Any]:
    """The machine that runs this, for a document that keeps nothing of another."""
    native = targets.resolve("native")
    return {
        "processor": processor(),
        "cores": len(usable_cores()),
        "isa": (native.resolved or native.name).partition("+")[0],
        "vector_bits": native.vector_bits,
    }


def describe(machine: Mapping[str, Any]) -> str:
    """A document's machine, for a sentence."""
    position = f"{machine['processor']}, {machine['cores']} cores, {machine['isa']}"
    return f"{position} with vectors of {machine['vector_bits']} bits"


def write(document: Document, file: Path) -> None:
    """Replace the file, a row a line."""
    parts = []
    for name, value in document.items():
        lines = ",\n  ".join(json.dumps(_to_digits(one)) for one in value) if name == "rows" else ""
        text = f"[\n  {lines}\n ]" if lines else json.dumps(_to_digits(value))
        parts.append(f" {json.dumps(name)}: {text}")
    unfinished = file.with_suffix(".partial")
    unfinished.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    unfinished.replace(file)


def _to_digits(value: Any) -> Any:
    """Five digits of every float."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {name: _to_digits(one) for name, one in value.items()}
    return [_to_digits(one) for one in value] if isinstance(value, list) else value


def between(text: str, name: str, content: str) -> str:
    """The text with other content between `<!-- NAME -->` and `<!-- /NAME -->`; raises ValueError
    where it lacks either.
    """
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    start = text.index(first) + len(first)
    end = text.index(last, start)
    return f"{text[:start]}\n\n{content}\n\n{text[end:]}"
