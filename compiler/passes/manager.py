"""Runs the passes of a pipeline, and observers around each of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import tvm
from tvm.ir.instrument import pass_instrument

from compiler.errors import CompileError, PassError, ToolchainMissing, is_out_of_memory, summary
from compiler.ir.imported import Ranges
from compiler.passes.cpu.recall import Recall
from compiler.passes.framework.base import Pass, Phase
from compiler.passes.framework.observers import Observer
from compiler.passes.framework.te_order import dims_in_order
from compiler.passes.pipelines import Rounding, pipeline
from compiler.targets import Target

LAST_OF_KERNELS = Phase.LOOPS
"""Behind this phase the weights are taken out of a module."""

_CUDA_GRAPHS = {"relax.backend.use_cuda_graph": True}


def lower(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
) -> tvm.IRModule:
    """Runs the whole pipeline: `main` becomes calls of the virtual machine, every tensor program a
    scheduled PrimFunc. Raises PassError naming the pass.
    """
    return to_machine(to_kernels(module, target, ranges, observers), target, ranges, observers)


def to_kernels(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
    rounding: Rounding | None = None,
    recall: Recall | None = None,
) -> tvm.IRModule:
    """Runs the pipeline up to scheduled tensor programs and the calls between them; raises
    PassError naming the pass, or ToolchainMissing.

    rounding: of weights that are stored in fewer bits, or of what is multiplied; recall: of kernels
    of earlier builds, of which the result has no loops: a KernelCache has to link it.
    """
    if target.device is not None and target.device.lacking:
        raise ToolchainMissing(f"{target.name}: {target.device.lacking}", reason="lacking")
    steps = pipeline(target, ranges, rounding, recall)
    first = [step for step in steps if step.phase.position <= LAST_OF_KERNELS.position]
    # On processors these phases see no features of the target but through the vector unit: TVM's
    # own schedules for them are not used.
    seen = "llvm" if target.device is None else target.to_tvm()
    with tvm.target.Target(seen):
        return run(first, module, observers, _config(target))


def to_machine(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
) -> tvm.IRModule:
    """Runs the rest of the pipeline on a result of `to_kernels`, down to calls of the virtual
    machine; raises PassError naming the pass.
    """
    steps = pipeline(target, ranges)
    rest = [step for step in steps if step.phase.position > LAST_OF_KERNELS.position]
    with tvm.target.Target(target.to_tvm()):
        return run(rest, module, observers, _config(target))


def to_plan(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
) -> tvm.IRModule:
    """Runs the pipeline on a result of `to_kernels` up to the memory plan, ahead of what the
    virtual machine wants; raises PassError naming the pass.
    """
    first, last = LAST_OF_KERNELS.position, Phase.MEMORY_PLAN.position
    steps = [step for step in pipeline(target, ranges) if first < step.phase.position <= last]
    with tvm.target.Target(target.to_tvm()):
        return run(steps, module, observers, _config(target))


def run(
    passes: Sequence[Pass],
    module: tvm.IRModule,
    observers: Sequence[Observer] = (),
    config: dict[str, Any] | None = None,
) -> tvm.IRModule:
    """Applies the passes in order, with `config` for those of TVM."""
    for step, following in zip_longest(passes, passes[1:]):
        for observer in observers:
            observer.before(step, module)
        try:
            with _errors_named(step, config or {}):
                changed = step.apply(module)
        except CompileError:
            for observer in observers:
                # A dump needs the module that the failing pass was given.
                observer.failed(step, module)
            raise
        module = changed
        for observer in observers:
            observer.after(step, module)
            if following is None or following.phase is not step.phase:
                observer.phase_ended(step.phase, module)
    return module


def _config(target: Target) -> dict[str, Any]:
    return _CUDA_GRAPHS if target.kind == "cuda" else {}


@contextmanager
def _errors_named(step: Pass, config: dict[str, Any]) -> Iterator[None]:
    """Runs `step` in a PassContext; turns any error that is not ours into a PassError naming it."""
    inner = _InnerPasses()
    try:
        with (
            dims_in_order(),
            tvm.transform.PassContext(opt_level=3, instruments=[inner], config=config),
        ):
            yield
    except CompileError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise PassError(
            f"pass {step.name}: {summary(error)}",
            reason="failed",
            pass_name=step.name,
            hint="the build's log has the whole story",
            **inner.details(step),
        ) from error


@pass_instrument
class _InnerPasses:
    """The TVM passes that run inside of a step, outermost first; one that fails is never popped."""

    def __init__(self) -> None:
        self._running: list[str] = []

    def details(self, step: Pass) -> dict[str, Any]:
        """The innermost TVM pass that failed, if it has another name than the step."""
        name = self._running[-1] if self._running else step.name
        return {} if name == step.name else {"inner_pass": name}

    def run_before_pass(self, module: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Called by TVM before each pass."""
        self._running.append(info.name)

    def run_after_pass(self, module: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Called by TVM after each pass that did not fail."""
        self._running.pop()
