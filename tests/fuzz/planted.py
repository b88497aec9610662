"""relaxd with a fault planted in one of its kernels, as an engine."""

from dataclasses import replace
from unittest import mock

from compiler.passes.cpu import schedule
from compiler.passes.cpu.families.pooling.family import POOLING
from compiler.passes.cpu.families.pooling.match import Window
from compiler.passes.cpu.families.table import FAMILIES
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.loops import Stmt
from tests.fuzz import engines


def relaxd(question: engines.Question) -> list[engines.Outputs] | engines.Failed:
    """Run as `engines.relaxd` does, but windows lack their last tap along a row."""
    wrong = replace(POOLING, emit=_last_left_out)
    families = [wrong if family is POOLING else family for family in FAMILIES]
    with mock.patch.object(schedule, "FAMILIES", tuple(families)):
        return engines.relaxd(question)


def _last_left_out(window: Window, unit: VectorUnit) -> Stmt:
    """The kernel without its last tap along a row."""
    taps = replace(window.taps, extent=window.taps.extent - 1)
    return POOLING.emit(replace(window, taps=taps), unit)
