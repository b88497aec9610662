"""Runs passes of the pipelines, chosen by name, on a saved module."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import relax, s_tir, tirx

from compiler import targets
from compiler.ir.imported import Ranges
from compiler.passes import manager
from compiler.passes.framework.base import FromTVM, Pass
from compiler.passes.framework.checks import CheckPasses
from compiler.passes.framework.saved import SavedModule, read_module, write_module
from compiler.passes.pipelines import Interface, pipeline
from compiler.targets import Target
from relaxd.contract.options import Flavour
from relaxd.errors import DeclarationError, suggest

_SYMBOLS = "relaxd_model"
_FOLDERS: dict[str, tuple[Any, ...]] = {
    "": (relax.transform, relax.backend),
    "tirx": (tirx.transform,),
    "s_tir": (s_tir.transform,),
}
"""Where TVM documents its passes, by what their names begin with."""


@dataclass(frozen=True)
class PassRow:
    """A pass as `relaxd opt --list` shows it."""

    name: str
    phase: str
    requires: tuple[str, ...]
    ensures: tuple[str, ...]
    summary: str


def passes_of(target: Target, ranges: Ranges) -> tuple[Pass, ...]:
    """The passes of the target's pipelines, those of the virtual machine and of C, each name once;
    passes that quantize or look up kernels are part of a build alone.
    """
    by_name: dict[str, Pass] = {}
    for flavour in (Flavour.VM, Flavour.STANDALONE):
        for step in pipeline(target, ranges, interface=Interface(flavour, _SYMBOLS)):
            by_name.setdefault(step.name, step)
    return tuple(sorted(by_name.values(), key=lambda step: step.phase.position))


def list_passes(target: str = "native") -> list[PassRow]:
    """The passes of a target, in the order of their phases."""
    return [
        PassRow(
            step.name,
            step.phase.value,
            tuple(map(str, step.requires)),
            tuple(map(str, step.ensures)),
            _summary(step),
        )
        for step in passes_of(targets.resolve(target), {})
    ]


def optimize_file(path: Path, names: Sequence[str], target: str | None = None) -> SavedModule:
    """The module of a file after the passes of these names, in this order; raises
    DeclarationError for an unreadable file and an unknown pass, PassError for one whose
    requirements the module does not meet and for one that fails.

    target: in place of the file's.
    """
    saved = read_module(path, target or "native")
    chosen = target or saved.target
    resolved = targets.resolve(chosen)
    known = {step.name: step for step in passes_of(resolved, saved.ranges)}
    steps = [_look_up(name, known) for name in names]
    module = manager.run(steps, saved.module, (CheckPasses(),), resolved)
    return SavedModule(module, chosen, saved.ranges)


def save(path: Path, saved: SavedModule) -> None:
    """Write the module as JSON, which `optimize_file` reads again, or as TVMScript to a path that
    ends with `.py`.
    """
    if path.suffix == ".py":
        path.write_text(script_of(saved), encoding="utf-8")
    else:
        write_module(path, saved)


def script_of(saved: SavedModule) -> str:
    """The module as TVMScript, without the values of constants."""
    return str(saved.module.script())


def _look_up(name: str, known: dict[str, Pass]) -> Pass:
    if name in known:
        return known[name]
    raise DeclarationError(
        f"there is no pass {name}",
        field="passes",
        hint=suggest(name, known, "relaxd opt --list shows all"),
    )


def _summary(step: Pass) -> str:
    documented: Any = type(step)
    if isinstance(step, FromTVM):
        prefix, _, name = step.name.rpartition(".")
        folders = _FOLDERS.get(prefix, ())
        documented = next((getattr(f, name) for f in folders if hasattr(f, name)), None)
    text = inspect.getdoc(documented) if documented is not None else None
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".")
