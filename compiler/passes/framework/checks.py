"""Checks between passes: that a module has what a pass requires, and that its result has what the
pass ensures and is well-formed.
"""

import os
from collections.abc import Iterable, Sequence

import tvm
from tvm import relax, s_tir, tirx

from compiler.errors import PassError, summary
from compiler.passes.framework.base import FromTVM, Pass, Phase
from compiler.passes.framework.observers import Observer
from compiler.passes.framework.properties import Property

VARIABLE = "RELAXD_CHECK_PASSES"
"""The environment variable that, set to 1, has every pass of this process checked."""


def check_order(passes: Iterable[Pass], at_first: Iterable[Property] = ()) -> None:
    """Raises PassError for the first pass that requires what no pass before it ensures; at_first:
    what holds before.
    """
    established = set(at_first)
    for step in passes:
        for required in step.requires:
            if required not in established:
                raise PassError(
                    f"pass {step.name} requires {required}, which no pass before it ensures",
                    reason="order",
                    pass_name=step.name,
                )
        established.update(step.ensures)


class CheckPasses(Observer):
    """Raises PassError where a module lacks what a pass requires, and behind the first pass whose
    result lacks what it ensures, or is not well-formed where what it was given is.

    TVM's own lowering breaks TVM's rules (LowerCrossThreadReduction, LowerIntrin), and functions
    over pointers declare buffers whose extents they do not take. So below the loops only our passes
    are held to the rules, up to flat loops.
    """

    def __init__(self) -> None:
        self._was_well_formed = True

    def before(self, step: Pass, module: tvm.IRModule) -> None:
        """Checks what the pass requires."""
        for required in step.requires:
            if not required.holds(module):
                raise PassError(
                    f"pass {step.name} requires {required}: {required.meaning}",
                    reason="requires",
                    pass_name=step.name,
                    hint=f"run a pass that ensures {required} first",
                )
        if _is_held_to_rules(step) and step.phase.is_by_kernel:
            self._was_well_formed = _broken_rule(module) is None

    def after(self, step: Pass, module: tvm.IRModule) -> None:
        """Checks what the pass ensures, and TVM's rules."""
        for ensured in step.ensures:
            if not ensured.holds(module):
                raise PassError(
                    f"pass {step.name} is to ensure {ensured}: {ensured.meaning}",
                    reason="ensures",
                    pass_name=step.name,
                )
        if not _is_held_to_rules(step) or not self._was_well_formed:
            return
        if (rule := _broken_rule(module)) is not None:
            raise PassError(
                f"pass {step.name} leaves a module that is not well-formed: {rule}",
                reason="not_well_formed",
                pass_name=step.name,
            )


def _is_held_to_rules(step: Pass) -> bool:
    if not step.phase.is_by_kernel:
        return True
    return step.phase is Phase.LOWERED_LOOPS and not isinstance(step, FromTVM)


def _broken_rule(module: tvm.IRModule) -> str | None:
    """The rule that a module breaks, in TVM's words; None of one that is well-formed."""
    try:
        relax.analysis.well_formed(module)
        for func in module.functions.values():
            # One by one: functions that were one may share variables.
            if isinstance(func, tirx.PrimFunc):
                s_tir.analysis.verify_well_formed(func)
    except MemoryError:
        raise
    except Exception as error:  # TVM raises errors of several kinds
        return summary(error)
    return None


def required_checks() -> Sequence[Observer]:
    """The checks that the environment asks for."""
    return (CheckPasses(),) if os.environ.get(VARIABLE) == "1" else ()
