"""The order of the passes: one flat tuple."""

from collections.abc import Callable

import tvm
from tvm import relax

from compiler.passes.cpu.decide_branches import DecideBranches
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.graph.channels_last import channels_last
from compiler.passes.graph.combine_projections import combine_projections
from compiler.passes.graph.define_first import define_first
from compiler.passes.graph.fold_layout import fold_layout
from compiler.passes.graph.fuse_attention import fuse_attention
from compiler.passes.graph.legalize_concat import legalize_concat
from compiler.passes.graph.lift_views import LiftViews
from compiler.passes.graph.op_patterns import correct_patterns
from compiler.passes.graph.rows_as_images import rows_as_images
from compiler.passes.graph.slice_heads import slice_heads
from compiler.passes.graph.views import legalize_reshape, views
from compiler.passes.pack.conv import PackConv
from compiler.passes.pack.integer import PackInteger
from compiler.passes.pack.matmul import PackMatmul
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.dims import Dim

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def passes(unit: VectorUnit, dims: tuple[Dim, ...]) -> tuple[Pass, ...]:
    """Every pass, in order."""
    transform = relax.transform
    return (
        # graph
        transform.CanonicalizeBindings(),
        transform.EliminateCommonSubexpr(),
        transform.DecomposeOpsForInference(),
        fold_layout,
        transform.FoldConstant(),
        LiftViews(),
        rows_as_images,
        channels_last,
        LiftViews(transposes=True),
        slice_heads,
        combine_projections,
        fuse_attention,
        # constants laid out for the kernels
        PackInteger(unit),
        PackConv(unit, {dim.name: dim.opt for dim in dims if dim.opt is not None}),
        PackMatmul(unit),
        # tensor programs
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps({"relax.reshape": legalize_reshape, "relax.concat": legalize_concat}),
        transform.AnnotateTIROpPattern(),
        correct_patterns,
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
        views,
        define_first,
        # loops
        ScheduleKernels(unit),
        DecideBranches(dims),
    )


def optimise(module: tvm.IRModule, target: Target, dims: tuple[Dim, ...]) -> tvm.IRModule:
    """The imported module as scheduled tensor programs and the calls between them, ready for TVM's
    default build pipeline.
    """
    with tvm.target.Target("llvm"):
        for step in passes(VectorUnit.of(target), dims):
            module = step(module)
    return module
