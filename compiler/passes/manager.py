"""From an imported module to one that the virtual machine's code generator takes: our passes, then
TVM's lowering.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.ir.instrument import pass_instrument

from compiler.errors import CompileError, PassError, ToolchainMissing, summary
from compiler.passes import check_lowered, memory_report
from compiler.passes.gpu import pipeline as grid
from compiler.passes.graph.name_checks import name_checks
from compiler.passes.graph.share_buffers import share_buffers
from compiler.passes.pipelines import optimise
from compiler.targets import Target
from relaxd.contract.dims import Dim
from relaxd.contract.manifest import RELEASE

_PASSES = Path(__file__).parent


def lower(module: tvm.IRModule, target: Target, dims: tuple[Dim, ...]) -> tvm.IRModule:
    """`main` as virtual machine calls, every tensor function as TIR; raises PassError naming the
    pass.
    """
    return to_machine(to_kernels(module, target, dims), target, dims)[0]


def to_kernels(module: tvm.IRModule, target: Target, dims: tuple[Dim, ...]) -> tvm.IRModule:
    """`main` as calls of tensor programs, each scheduled; raises PassError naming the pass,
    ToolchainMissing.
    """
    if target.device is not None and target.device.lacking:
        raise ToolchainMissing(f"{target.name}: {target.device.lacking}", reason="lacking")
    with _passes(target):
        grids = target.device is not None
        optimised = (
            grid.optimise(module, tvm.target.Target(target.to_tvm()))
            if grids
            else optimise(module, target, dims)
        )
        check_lowered.check(optimised)
        return optimised


def to_machine(
    module: tvm.IRModule, target: Target, dims: tuple[Dim, ...]
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """From there to calls of the virtual machine, and what its memory plan saves; raises PassError
    naming the pass.
    """
    with _passes(target):
        unplanned = tvm.transform.Sequential(list(_allocation_passes()))(with_release(module))
        planned = relax.transform.StaticPlanBlockMemory()(unplanned)
        # What goes into CUDA graphs is found by its allocations.
        shared = share_buffers(planned) if target.device is None else planned
        lowered = name_checks(tvm.transform.Sequential(list(_machine_passes(target)))(shared))
    return lowered, memory_report.report(unplanned, planned, dims)


@contextmanager
def _passes(target: Target) -> Iterator[None]:
    """Runs passes for the target; what they raise comes out as an error that names the pass."""
    current = _CurrentPass()
    config = grid.CUDA_GRAPH if target.kind == "cuda" else {}
    try:
        with (
            tvm.target.Target(target.to_tvm()),
            tvm.transform.PassContext(opt_level=3, instruments=[current], config=config),
        ):
            yield
    except CompileError:
        raise
    except MemoryError:
        raise
    except Exception as error:
        name = current.running[-1] if current.running else _own_pass(error)
        raise PassError(
            f"pass {name}: {summary(error)}",
            reason="failed",
            pass_name=name,
            hint="the build's log has the whole story",
        ) from error


def with_release(module: tvm.IRModule) -> tvm.IRModule:
    """The module and the function by which loaders make its virtual machine let go of a result."""
    builder = relax.BlockBuilder(module)
    with builder.function(RELEASE, []):
        builder.emit_func_output(relax.Tuple([]))
    return builder.get()


def _allocation_passes() -> tuple[tvm.transform.Pass, ...]:
    """What makes every result an allocation of its own."""
    transform = relax.transform
    return (
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    )


def _machine_passes(target: Target) -> tuple[tvm.transform.Pass, ...]:
    """What follows the memory plan; on CUDA, what runs at fixed extents becomes graphs."""
    transform = relax.transform
    graphs = (transform.RewriteCUDAGraph(),) if target.kind == "cuda" else ()
    return (
        *graphs,
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    )


def _own_pass(error: Exception) -> str:
    """The file of the pass of ours that the error came through: TVM does not know of those that are
    plain functions.
    """
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    return next(
        (
            file.stem
            for file in files
            if file.is_relative_to(_PASSES) and file.stem not in ("manager", "pipelines")
        ),
        "pipeline",
    )


@pass_instrument
class _CurrentPass:
    """The TVM passes that run, outermost first; one that fails stays."""

    def __init__(self) -> None:
        self.running: list[str] = []

    def run_before_pass(self, module: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Called by TVM before each pass."""
        self.running.append(info.name)

    def run_after_pass(self, module: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Called by TVM after each pass that did not fail."""
        self.running.pop()
