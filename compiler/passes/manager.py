"""Runs the passes of a pipeline, and observers around each of them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import zip_longest
from typing import Any

import tvm
from tvm.ir.instrument import pass_instrument

from compiler.errors import CompileError, PassError, ToolchainMissing, is_out_of_memory, summary
from compiler.ir.imported import Ranges
from compiler.passes.cpu.recall import Recall
from compiler.passes.framework.base import Pass, Phase
from compiler.passes.framework.checks import required_checks
from compiler.passes.framework.observers import Observer
from compiler.passes.pipelines import DEFAULT, Interface, QuantizationPass, pipeline
from compiler.passes.tvm_fixes.order_te_dims import dims_in_order
from compiler.targets import Target

LAST_OF_KERNELS = Phase.LOOPS
"""Behind this phase the weights are taken out of a module."""

CODE_CONFIG = {"tirx.disable_storage_rewrite": True}
"""What lowering and code generation for processors run with: TVM's storage rewrite moves the
accumulators of kernels from the stack to the heap."""

_CUDA_GRAPHS = {"relax.backend.use_cuda_graph": True}


def lower(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
) -> tvm.IRModule:
    """Runs the pipeline down to calls of the virtual machine, with every tensor program a scheduled
    PrimFunc. Raises PassError naming the pass.
    """
    return to_machine(to_kernels(module, target, ranges, observers), target, ranges, observers)


def to_quantization(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    quantization: QuantizationPass,
    observers: Sequence[Observer] = (),
) -> tvm.IRModule:
    """Runs the pipeline up to where that pass stands, so that it can be planned by the module that
    it will be given; raises PassError naming the pass.
    """
    steps = pipeline(target, ranges, quantization)
    return run(steps[: steps.index(quantization)], module, observers, target)


def to_kernels(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
    quantization: QuantizationPass | None = None,
    recall: Recall | None = None,
    *,
    planned: bool = False,
) -> tvm.IRModule:
    """Runs the pipeline up to scheduled tensor programs and the calls between them; raises
    PassError naming the pass, or ToolchainMissing.

    quantization: of weights that are stored in fewer bits, or of what is multiplied; planned: the
    module is a result of `to_quantization`. recall: of kernels of earlier builds, of which the
    result has no loops: a KernelCache has to link it.
    """
    if target.device is not None and target.device.lacking:
        raise ToolchainMissing(f"{target.name}: {target.device.lacking}", reason="lacking")
    steps = _up_to(pipeline(target, ranges, quantization, recall), LAST_OF_KERNELS)
    first = steps.index(quantization) if planned and quantization is not None else 0
    return run(steps[first:], module, observers, target)


def to_machine(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
    interface: Interface = DEFAULT,
) -> tvm.IRModule:
    """Runs the pipeline on a result of `to_kernels`, down to calls of the virtual machine; raises
    PassError naming the pass.
    """
    steps = pipeline(target, ranges, interface=interface)
    rest = _between(steps, LAST_OF_KERNELS, Phase.VIRTUAL_MACHINE)
    return run(rest, module, observers, target)


def to_plan(
    module: tvm.IRModule,
    target: Target,
    ranges: Ranges,
    observers: Sequence[Observer] = (),
) -> tvm.IRModule:
    """Runs the pipeline on a result of `to_kernels` up to the memory plan, ahead of what the
    virtual machine wants; raises PassError naming the pass.
    """
    steps = pipeline(target, ranges)
    return run(_between(steps, LAST_OF_KERNELS, Phase.MEMORY_PLAN), module, observers, target)


class Lowering:
    """The passes below the loops, for tensor programs in modules of any number; threads may share
    it.
    """

    def __init__(
        self, target: Target, interface: Interface = DEFAULT, observers: Sequence[Observer] = ()
    ) -> None:
        self._target = target
        self._observers = observers
        self._steps = pipeline(target, {}, interface=interface)
        # What observes sees one module at a time.
        self._alone = threading.Lock() if observers else nullcontext()

    def lower(self, programs: tvm.IRModule) -> tvm.IRModule:
        """Scheduled tensor programs as functions that a code generator takes; raises PassError
        naming the pass, and CodegenError.
        """
        return self._run(programs, Phase.VIRTUAL_MACHINE, Phase.FUNCTIONS)

    def lower_loops(self, programs: tvm.IRModule) -> tvm.IRModule:
        """Scheduled tensor programs as flat loops over vectors, of which those of a grid are
        functions of the device and of its host; raises PassError naming the pass.
        """
        return self._run(programs, Phase.VIRTUAL_MACHINE, Phase.LOWERED_LOOPS)

    def finish_host(self, functions: tvm.IRModule) -> tvm.IRModule:
        """Functions that launch kernels on a grid, as a code generator takes them; raises PassError
        naming the pass.
        """
        return self._run(functions, Phase.LOWERED_LOOPS, Phase.FUNCTIONS)

    def finish_device(self, functions: tvm.IRModule) -> tvm.IRModule:
        """Functions of a device, as a code generator takes them; raises PassError naming the
        pass.
        """
        return self._run(functions, Phase.FUNCTIONS, Phase.DEVICE_FUNCTIONS)

    def _run(self, module: tvm.IRModule, first: Phase, last: Phase) -> tvm.IRModule:
        with self._alone:
            steps = _between(self._steps, first, last)
            return run(steps, module, self._observers, self._target)


def _up_to(steps: Sequence[Pass], last: Phase) -> Sequence[Pass]:
    return [step for step in steps if step.phase.position <= last.position]


def _between(steps: Sequence[Pass], first: Phase, last: Phase) -> Sequence[Pass]:
    """The passes of the phases behind `first`, up to `last`."""
    return [step for step in _up_to(steps, last) if step.phase.position > first.position]


def run(
    passes: Sequence[Pass],
    module: tvm.IRModule,
    observers: Sequence[Observer] = (),
    target: Target | None = None,
) -> tvm.IRModule:
    """Applies the passes in order, each as its phase wants to see the target; raises PassError
    naming the pass.
    """
    observers = (*observers, *required_checks())
    for step, following in zip_longest(passes, passes[1:]):
        for observer in observers:
            observer.before(step, module)
        try:
            with _errors_named(step, target):
                changed = step.apply(module)
        except CompileError:
            for observer in observers:
                # A dump needs the module that the failing pass was given.
                observer.after_failure(step, module)
            raise
        module = changed
        for observer in observers:
            observer.after(step, module)
            if following is None or following.phase is not step.phase:
                observer.phase_ended(step.phase, module)
    return module


def _context(step: Pass, target: Target | None, instruments: list[Any]) -> ExitStack:
    """The context of a pass: the target as far as it may know it, and TVM's options."""
    stack, phase = ExitStack(), step.phase
    config: dict[str, Any] = {}
    if phase.is_by_kernel:
        # TVM's instruments cost more than most passes over one kernel.
        instruments = []
        config = CODE_CONFIG if target is not None and target.device is None else {}
    else:
        stack.enter_context(dims_in_order())
        if target is not None:
            stack.enter_context(tvm.target.Target(_seen(phase, target)))
            config = _CUDA_GRAPHS if target.kind == "cuda" else {}
    context = tvm.transform.PassContext(opt_level=3, instruments=instruments, config=config)
    stack.enter_context(context)
    return stack


def _seen(phase: Phase, target: Target) -> Any:
    """The target as the phases of the graph see it. Up to the loops, those for processors see no
    features but through the vector unit: TVM's own schedules for them are not used.
    """
    is_plain = target.device is None and phase.position <= LAST_OF_KERNELS.position
    return "llvm" if is_plain else target.to_tvm()


@contextmanager
def _errors_named(step: Pass, target: Target | None) -> Iterator[None]:
    """Runs `step` in its context; turns any error that is not ours into a PassError naming it."""
    inner = _InnerPasses()
    try:
        with _context(step, target, [inner]):
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
            hint="the build's log has the full error",
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
