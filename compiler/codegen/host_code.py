"""From loops to what LLVM takes: TVM's lowering for a CPU, without what only GPUs need."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import s_tir, tirx

from compiler.codegen.bfloats import without_bfloats
from compiler.codegen.divisions import settled
from compiler.codegen.flatten import flattened
from compiler.codegen.floors import truncated
from compiler.codegen.halves import divided, joined
from compiler.codegen.intrinsics import intrinsics
from compiler.codegen.plain_names import plainly_named
from compiler.codegen.reciprocals import multiplied
from compiler.codegen.unaligned import unaligned
from compiler.errors import CodegenError, summary
from compiler.passes.framework.kernel_notes import FAMILY
from compiler.targets import Target

NAME = "relaxd_host"
CONFIG = {"tirx.disable_storage_rewrite": True}
"""What code generation must run with: TVM's storage rewrite moves the accumulators of kernels from
the stack to the heap."""


ARITHMETIC = (truncated, multiplied)
"""What gives flat functions of a CPU the divisions that they run with."""

_VECTOR_CALLS = ("tirx.nearbyint", "tirx.rsqrt")
"""Functions that LLVM computes in vectors and TVM does not know to be such."""

_MARKING = threading.Lock()
"""TVM refuses to be told of an attribute twice."""

_TARGET = "target"
"""The attribute by which BindTarget states a function's target."""

_SIMPLIFIED = ("attention", "generic")
"""Families whose kernels LLVM leaves in scalars where conditions on constant extents stay written
out: over 197 keys attention took twice as long, a layer norm half as long again."""


Change = Callable[[tvm.IRModule], tvm.IRModule]


def step_of(change: Change) -> Any:
    """A pass of TVM that applies `change`."""
    return tvm.ir.transform.module_pass(
        lambda module, _context: change(module), opt_level=0, name=change.__name__
    )


def simplified(module: tvm.IRModule) -> tvm.IRModule:
    """The module with simpler statements in the kernels of the families that need them."""
    chosen = {
        gvar: function
        for gvar, function in module.functions.items()
        if function.attrs and str(function.attrs.get(FAMILY, "")) in _SIMPLIFIED
    }
    if not chosen:
        return module
    done = tirx.transform.StmtSimplify()(tvm.IRModule(chosen, attrs=module.attrs))
    return tvm.IRModule({**dict(module.functions), **dict(done.functions)}, attrs=module.attrs)


def vectorized(module: tvm.IRModule) -> tvm.IRModule:
    """The module with vector statements for its vectorized loops.

    At each loop TVM asks LLVM anew whether the target's vectors are scalable, which took 95 % of
    the pass. It is asked once here, and sees no target where they are not.
    """
    vectorize = tirx.transform.VectorizeLoop(True)
    bound = {gvar: function.attrs[_TARGET] for gvar, function in module.functions.items()}
    if any(map(_has_scalable_vectors, set(bound.values()))):
        return vectorize(module)
    unbound = {gvar: func.without_attr(_TARGET) for gvar, func in module.functions.items()}
    done = vectorize(tvm.IRModule(unbound, attrs=module.attrs))
    functions = {
        gvar: func.with_attr(_TARGET, bound[gvar]) for gvar, func in done.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _has_scalable_vectors(target: tvm.target.Target) -> bool:
    """Whether TVM splits loops into vectors of a length that the processor knows: with RISC-V's V
    and ARM's SVE.
    """
    has_feature = tvm.get_global_func("target.target_has_feature")
    return bool(target.features.has_sve) or bool(has_feature("v", target))


@contextmanager
def failures(target: Target) -> Iterator[None]:
    """Raise what fails inside as CodegenError that names the target; errors that are typed already,
    and MemoryError, pass.
    """
    try:
        yield
    except (MemoryError, CodegenError):
        raise
    except Exception as error:
        raise CodegenError(
            f"code generation for {target.name}: {summary(error)}",
            reason="failed",
            hint="the build's log has the whole story",
        ) from error


def lowering_steps(first: Sequence[Change] = (), last: Sequence[Change] = ()) -> list[Any]:
    """The passes from scheduled loops to flat, vectorised ones, whatever interface functions get.

    first, last: what the target needs once loops are flat, and before they are vectors.

    CompactBufferAllocation is left out, for which TVM takes half a minute on an unrolled kernel:
    scratch buffers are as large as they need to be. So are LoopPartition and HoistIfThenElse:
    conditions stand where they belong. And so are StmtSimplify, RenormalizeSplitPattern,
    CommonSubexprElim and RemoveNoOp: LLVM does that work anyway, and StmtSimplify, which puts the
    values of variables where the variables stand, took two fifths of ResNet-50's build; a few
    families have it all the same (`simplified`).
    """
    schedule, lower = s_tir.transform, tirx.transform
    return [
        schedule.CanonicalizeLoop(),
        schedule.LowerInitBlock(),
        schedule.PlanAndUpdateBufferAllocationLocation(),
        schedule.ConvertBlocksToOpaque(),
        schedule.LowerMatchBuffer(),
        schedule.LowerOpaqueBlock(),
        *map(step_of, (flattened, *first, unaligned, settled, without_bfloats, *last)),
        lower.NarrowDataType(32),
        step_of(vectorized),
        lower.UnrollLoop(),
        step_of(simplified),
        schedule.RewriteUnsafeSelect(),
        lower.FP8ComputeLegalize(),
        lower.VerifyMemory(),
    ]


def _packed_steps() -> list[Any]:
    """The passes that give functions the interface of TVM's calls.

    AnnotateEntryFunc is left out: it gives a function that is alone in its module another symbol,
    and the function's code would depend on what else is compiled with it.
    """
    lower = tirx.transform
    return [
        lower.SplitHostDevice(),
        step_of(plainly_named),
        lower.MakePackedAPI(),
        lower.FP8StorageLegalize(),
        lower.BF16StorageLegalize(),
    ]


def _last_steps() -> list[Any]:
    return [tirx.transform.LowerTVMBuiltin(), tirx.transform.LowerIntrin()]


def lowered(programs: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Scheduled tensor programs as LLVM takes them, with the interface of TVM's calls."""
    mark_vector_calls()
    bound = tirx.transform.BindTarget(target.with_host(target))
    first, last, functions = map(step_of, (joined, divided, intrinsics))
    plain = [bound, first, *lowering_steps(), *map(step_of, ARITHMETIC), *_packed_steps(), last]
    steps = [*plain, tirx.transform.LowerTVMBuiltin(), functions]
    return tvm.ir.transform.Sequential(steps)(programs)


def _pipeline() -> tuple[Any, Any, Any]:
    """The module pass, and the finishing passes for host and device code, as `tvm.tirx.build` wants
    them.
    """

    def finish() -> Any:
        return tvm.ir.transform.Sequential(_last_steps())

    return tvm.ir.transform.Sequential([*lowering_steps(), *_packed_steps()]), finish, finish


def register() -> str:
    """Make the pipeline known to TVM, which takes pipelines by name only; gives the name."""
    mark_vector_calls()
    tirx.register_tir_pipeline(NAME, _pipeline)
    return NAME


def mark_vector_calls() -> None:
    """Make TVM know the functions that LLVM computes in vectors.

    VectorizeLoop makes a vector loop serial where it meets a function that has no vectors, and by
    then may have visited a Let of the same expression, which it refuses to visit again.
    """
    with _MARKING:
        for name in _VECTOR_CALLS:
            if not tvm.ir.Op.get(name).get_attr("TVectorizable"):
                tvm.ir.register_op_attr(name, "TVectorizable", True)
