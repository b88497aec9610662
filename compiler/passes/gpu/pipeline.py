"""The order of the passes for targets with grids of threads: two flat tuples."""

from collections.abc import Callable

import tvm
from tvm import relax

from compiler.passes.fold_layout import fold_layout
from compiler.passes.gpu.bound import check_bound
from compiler.passes.gpu.low_batch import SplitLowBatch
from compiler.passes.gpu.rows import flatten_rows
from compiler.passes.gpu.schedule import ScheduleOnGrid

Pass = Callable[[tvm.IRModule], tvm.IRModule]

CUDA_GRAPH = {"relax.backend.use_cuda_graph": True}
"""What `to_machine` must run with on CUDA."""


def passes(target: tvm.target.Target) -> tuple[Pass, ...]:
    """From an imported module to scheduled kernels and the calls between them."""
    transform = relax.transform
    return (
        # graph
        transform.CanonicalizeBindings(),
        transform.EliminateCommonSubexpr(),
        transform.DecomposeOpsForInference(),
        fold_layout,
        transform.FoldConstant(),
        # products with weights
        flatten_rows,
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
        # tensor programs
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FuseOps(),
        transform.FuseTIR(),
        # reshapes that move nothing need no kernel
        transform.RewriteDataflowReshape(),
        transform.DeadCodeElimination(),
        # grids
        SplitLowBatch(target),
        ScheduleOnGrid(target),
        check_bound,
    )


def machine_passes(target: tvm.target.Target) -> tuple[Pass, ...]:
    """From there to calls of the virtual machine; memory is planned from the upper bounds of the dims.

    What runs at fixed extents becomes CUDA graphs: all of a model whose dims are fixed.
    """
    transform = relax.transform
    graphs = (transform.RewriteCUDAGraph(),) if target.kind.name == "cuda" else ()
    return (
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        *graphs,
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    )


def optimise(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The imported module as kernels for `target` and the calls between them; raises PassError naming a kernel without a grid."""
    with target:
        for step in passes(target):
            module = step(module)
    return module
