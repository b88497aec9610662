"""From an imported module to one that the virtual machine's code generator takes: our passes, then TVM's lowering."""

from typing import Any

import tvm
from tvm import relax
from tvm.ir.instrument import pass_instrument

from compiler.errors import CompileError, PassError
from compiler.passes.pipeline import optimise
from compiler.stages import summary
from compiler.targets import Target
from relaxd.contract.dims import Dim


def lower(module: tvm.IRModule, target: Target, dims: tuple[Dim, ...]) -> tvm.IRModule:
    """`main` as virtual machine calls, every tensor function as TIR; raises PassError naming the pass."""
    current = _CurrentPass()
    try:
        with tvm.target.Target(tvm_target(target)), tvm.transform.PassContext(opt_level=3, instruments=[current]):
            return _to_machine(optimise(module, target, dims))
    except CompileError:
        raise
    except MemoryError:
        raise
    except Exception as error:
        raise PassError(
            f"pass {current.running}: {summary(error)}",
            reason="failed",
            pass_name=current.running,
            hint="the build's log has the whole story",
        ) from error


def tvm_target(target: Target) -> dict[str, Any]:
    """The registry's entry as TVM spells it."""
    return {"kind": target.kind, "mtriple": target.triple, "mcpu": target.cpu, "mattr": list(target.features)}


def _to_machine(module: tvm.IRModule) -> tvm.IRModule:
    transform = relax.transform
    return tvm.transform.Sequential(
        [
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
        ]
    )(module)


@pass_instrument
class _CurrentPass:
    """Remembers which pass runs, for the error that it may end in."""

    def __init__(self) -> None:
        self.running = "(none)"

    def run_before_pass(self, module: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Called by TVM before each pass."""
        if info.name != "sequential":
            self.running = info.name
