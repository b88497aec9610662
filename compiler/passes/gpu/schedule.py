"""Binds every tensor program to a grid of threads, by the first rule whose result the target's code
generator accepts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import tvm
from tvm import tirx
from tvm.s_tir import dlight

from compiler.errors import PassError
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.kernel_notes import KernelNote
from compiler.passes.framework.properties import Property
from compiler.passes.gpu.bound import is_bound, is_kernel
from compiler.passes.gpu.fallback import bind_nests, bind_one_thread
from compiler.passes.gpu.trial import refusal

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
"""The errors of TVM's rules on kernels that they were not written for; TVM's own errors are
RuntimeErrors.
"""

Rule = Callable[[tirx.PrimFunc], tirx.PrimFunc | None]


@dataclass(frozen=True)
class ScheduleOnGrid(ModulePass):
    """Binds the tensor programs of a module to blocks and threads of `target`, which has a host."""

    target: tvm.target.Target
    name = "schedule_on_grid"
    phase = Phase.LOOPS
    requires = (Property.TENSOR_PROGRAMS, Property.FUSED)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Raises PassError naming a tensor program that no rule can schedule."""
        functions = {
            gvar: self._schedule(gvar.name_hint, func) for gvar, func in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

    def _schedule(self, name: str, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
        # Loops that the importers write for processors count as scheduled, but are not bound.
        if not is_kernel(func) or ("tirx.is_scheduled" in func.attrs and is_bound(func)):
            return func
        declined: dict[str, str] = {}
        refused = []
        for rule_name, rule in self._rules(func):
            scheduled = rule(func)
            if scheduled is None:
                declined.setdefault(rule_name, "the rule is for other kernels")
                continue
            reason = refusal(scheduled, self.target)
            if reason is None:
                # A rule may have failed for one device and worked for the plain one.
                declined.pop(rule_name, None)
                note = KernelNote(rule_name, declined=declined)
                return note.onto(scheduled.with_attr("tirx.is_scheduled", True))
            declined[rule_name] = reason
            refused.append(f"{rule_name}: {reason}")
        raise PassError(
            f"no schedule for the kernel {name} on {self.target.kind.name}: {refused[-1]}",
            reason="unschedulable",
            pass_name=self.name,
            hint="build for a CPU target, or leave the operator out of the model",
            kernel=name,
            refused=refused,
        )

    def _rules(self, func: tirx.PrimFunc) -> Iterator[tuple[str, Rule]]:
        """The rules for `func`, best first. TVM's own programs for sorting and scans are bound
        already.
        """
        if is_bound(func):
            yield "Given", lambda func: func
        for rule, target in dlight_rules(self.target):
            yield type(rule).__name__, partial(apply_rule, rule, target)
        yield "Nests", lambda func: bind_nests(func, threads_of(self.target))
        yield "OneThread", bind_one_thread


def dlight_rules(
    target: tvm.target.Target,
) -> tuple[tuple[dlight.ScheduleRule, tvm.target.Target], ...]:
    """TVM's rules for `target`, best first, each with the target that it is applied for.

    The rule for matmuls crashes the process when it is applied for Metal, and works when it is
    applied for a plain device. Other targets try that second.
    """
    gpu = dlight.gpu
    plain = tvm.target.Target(
        {"kind": "opencl", "max_num_threads": target.attrs["max_num_threads"]}
    )
    others = (gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Transpose(), gpu.Fallback())
    believed = (plain,) if target.kind.name == "metal" else (target, plain)
    return *((gpu.Matmul(), device) for device in believed), *((rule, target) for rule in others)


def threads_of(target: tvm.target.Target) -> int:
    """Threads of a block of our own grids: every such device accepts them, and they hide the
    latency of memory.
    """
    return min(256, int(target.attrs["max_num_threads"]))


def apply_rule(
    rule: dlight.ScheduleRule, target: tvm.target.Target, func: tirx.PrimFunc
) -> tirx.PrimFunc | None:
    """Schedules `func` by the rule; None if the rule is for other kernels, or fails on this one."""
    try:
        with target:
            result = rule.apply(func, target, False)
    except _RULE_ERRORS:
        return None
    schedule = result[0] if isinstance(result, list) else result
    return None if schedule is None else schedule.mod["main"].with_attr(dict(func.attrs))
