"""Gives every tensor program a grid of threads: the first schedule that code can be made of."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import tvm
from tvm import tirx
from tvm.s_tir import dlight

from compiler.errors import PassError
from compiler.passes.gpu.bound import is_bound, is_kernel
from compiler.passes.gpu.fallback import bind_nests, bind_one_thread
from compiler.passes.gpu.trial import refusal

RULE = "relaxd.rule"
"""The attribute that names the rule a kernel's schedule came from."""

_RULE_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    IndexError,
    KeyError,
    AssertionError,
    NotImplementedError,
)
"""What TVM's rules raise on kernels that they were not written for; TVM's own errors are
RuntimeErrors.
"""

Rule = Callable[[tirx.PrimFunc], tirx.PrimFunc | None]


@dataclass(frozen=True)
class ScheduleOnGrid:
    """Schedules the module's tensor programs for `target`, which has a host."""

    target: tvm.target.Target

    def __call__(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with every kernel bound to blocks and threads; raises PassError naming one
        that no rule can take.
        """
        functions = {
            gvar: self._schedule(gvar.name_hint, func) for gvar, func in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

    def _schedule(self, name: str, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
        # What the importer wrote for processors counts as scheduled, too.
        if not is_kernel(func) or ("tirx.is_scheduled" in func.attrs and is_bound(func)):
            return func
        refused = []
        for rule_name, rule in self._rules(func):
            scheduled = rule(func)
            if scheduled is None:
                continue
            reason = refusal(scheduled, self.target)
            if reason is None:
                return scheduled.with_attr({"tirx.is_scheduled": True, RULE: rule_name})
            refused.append(f"{rule_name}: {reason}")
        raise PassError(
            f"no schedule for the kernel {name} on {self.target.kind.name}: {refused[-1]}",
            reason="unschedulable",
            pass_name="ScheduleOnGrid",
            hint="build for a CPU target, or leave the operator out of the model",
            kernel=name,
            refused=refused,
        )

    def _rules(self, func: tirx.PrimFunc) -> Iterator[tuple[str, Rule]]:
        """Best first; dispatch to TVM's own grid programs (sorting, scans) comes bound already."""
        if is_bound(func):
            yield "Given", lambda func: func
        for rule, target in dlight_rules(self.target):
            yield type(rule).__name__, partial(applied, rule, target)
        yield "Nests", lambda func: bind_nests(func, threads_of(self.target))
        yield "OneThread", bind_one_thread


def dlight_rules(
    target: tvm.target.Target,
) -> tuple[tuple[dlight.ScheduleRule, tvm.target.Target], ...]:
    """TVM's rules for `target`, best first, each with the target it is to believe in.

    On Metal the rule for matrix products takes a path that crashes the process; told of a plain
    device it does not. That is its second chance elsewhere, too.
    """
    gpu = dlight.gpu
    plain = tvm.target.Target(
        {"kind": "opencl", "max_num_threads": target.attrs["max_num_threads"]}
    )
    others = (gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Transpose(), gpu.Fallback())
    believed = (plain,) if target.kind.name == "metal" else (target, plain)
    return *((gpu.Matmul(), device) for device in believed), *((rule, target) for rule in others)


def threads_of(target: tvm.target.Target) -> int:
    """How many threads a block of our own grids has: what every such device takes, and enough to
    hide latency.
    """
    return min(256, int(target.attrs["max_num_threads"]))


def applied(
    rule: dlight.ScheduleRule, target: tvm.target.Target, func: tirx.PrimFunc
) -> tirx.PrimFunc | None:
    """`func` scheduled by the rule, None where the rule is for other kernels or fails on
    this one.
    """
    try:
        with target:
            made = rule.apply(func, target, False)
    except _RULE_ERRORS:
        return None
    schedule = made[0] if isinstance(made, list) else made
    return None if schedule is None else schedule.mod["main"].with_attr(dict(func.attrs))
