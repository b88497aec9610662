"""The order of the passes for targets whose kernels run on grids of threads: one flat tuple."""

from collections.abc import Callable

import tvm
from tvm import relax

from compiler.passes.gpu.bound import check_bound
from compiler.passes.gpu.low_batch import SplitLowBatch
from compiler.passes.gpu.narrow import narrow
from compiler.passes.gpu.rows import flatten_rows
from compiler.passes.gpu.schedule import ScheduleOnGrid
from compiler.passes.graph.fold_layout import fold_layout

Pass = Callable[[tvm.IRModule], tvm.IRModule]

CUDA_GRAPH = {"relax.backend.use_cuda_graph": True}
"""What lowering to the virtual machine must run with for CUDA graphs."""


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
        # WGSL has no 64-bit integers
        *((narrow,) if target.kind.name == "webgpu" else ()),
        # grids
        SplitLowBatch(target),
        ScheduleOnGrid(target),
        check_bound,
    )


def optimise(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The imported module as kernels for `target` and the calls between them; raises PassError
    naming a kernel without a grid.
    """
    with target:
        for step in passes(target):
            module = step(module)
    return module
