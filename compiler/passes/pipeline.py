"""The order of the passes: one flat tuple."""

from collections.abc import Callable

import tvm
from tvm import relax

from compiler.passes.channels_last import channels_last
from compiler.passes.combine_projections import combine_projections
from compiler.passes.decide_branches import DecideBranches
from compiler.passes.define_first import define_first
from compiler.passes.fold_layout import fold_layout
from compiler.passes.fuse_attention import fuse_attention
from compiler.passes.joins import legalize_concat
from compiler.passes.lift_views import LiftViews
from compiler.passes.machine import Machine
from compiler.passes.pack_conv import PackConv
from compiler.passes.pack_integer import PackInteger
from compiler.passes.pack_matmul import PackMatmul
from compiler.passes.rows_as_images import rows_as_images
from compiler.passes.schedule import ScheduleKernels
from compiler.passes.slice_heads import slice_heads
from compiler.passes.views import legalize_reshape, views
from compiler.targets import Target
from relaxd.contract.dims import Dim

Pass = Callable[[tvm.IRModule], tvm.IRModule]

CODEGEN_CONFIG = {"tirx.disable_storage_rewrite": True}
"""What code generation must run with: TVM's storage rewrite moves the accumulators of kernels from the stack to the heap."""


def passes(machine: Machine, dims: tuple[Dim, ...]) -> tuple[Pass, ...]:
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
        PackInteger(machine),
        PackConv(machine, {dim.name: dim.opt for dim in dims if dim.opt is not None}),
        PackMatmul(machine),
        # tensor programs
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps({"relax.reshape": legalize_reshape, "relax.concat": legalize_concat}),
        transform.AnnotateTIROpPattern(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
        views,
        define_first,
        # loops
        ScheduleKernels(machine),
        DecideBranches(dims),
    )


def optimise(module: tvm.IRModule, target: Target, dims: tuple[Dim, ...]) -> tvm.IRModule:
    """The imported module as scheduled tensor programs and the calls between them, ready for TVM's default build pipeline."""
    with tvm.target.Target("llvm"):
        for step in passes(Machine.of(target), dims):
            module = step(module)
    return module
