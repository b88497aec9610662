"""The pipelines: one flat tuple of passes for processors, and one for GPUs."""

from functools import partial

import tvm
from tvm import relax

from compiler.ir.imported import Ranges
from compiler.passes.check_lowered import CheckLowered
from compiler.passes.cpu.decide_branches import DecideBranches
from compiler.passes.cpu.recall import Recall, RecallKernels
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.framework.base import FromTVM, Pass, Phase
from compiler.passes.framework.kernel_notes import DropKernelNotes
from compiler.passes.gpu.bound import CheckBound
from compiler.passes.gpu.empty import SkipEmptyGrids
from compiler.passes.gpu.few_buffers import FewBuffers, concat_of_few
from compiler.passes.gpu.finite import FiniteLimits
from compiler.passes.gpu.low_batch import SplitLowBatch
from compiler.passes.gpu.narrow import Narrow
from compiler.passes.gpu.pack_words import PackWords
from compiler.passes.gpu.rows import FlattenRows
from compiler.passes.gpu.schedule import ScheduleOnGrid
from compiler.passes.gpu.unpack_nbits import UnpackNBits
from compiler.passes.graph.add_release import AddRelease
from compiler.passes.graph.break_chains import BreakChains
from compiler.passes.graph.channels_last import ChannelsLast
from compiler.passes.graph.check_extents import CheckExtents
from compiler.passes.graph.combine_projections import CombineProjections
from compiler.passes.graph.define_first import DefineFirst
from compiler.passes.graph.drop_empty import DropEmpty
from compiler.passes.graph.flush_weights import FlushWeights
from compiler.passes.graph.fold_constants import FoldConstants
from compiler.passes.graph.fold_layout import FoldLayout
from compiler.passes.graph.fuse_attention import FuseAttention
from compiler.passes.graph.gather_products import GatherProducts
from compiler.passes.graph.legalize_concat import legalize_concat
from compiler.passes.graph.legalize_not import legalize_not
from compiler.passes.graph.legalize_relu import legalize_relu
from compiler.passes.graph.legalize_softmax import legalize_softmax
from compiler.passes.graph.lift_views import LiftViews
from compiler.passes.graph.name_checks import NameChecks
from compiler.passes.graph.one_hot_rows import OneHotRows
from compiler.passes.graph.op_patterns import CorrectPatterns
from compiler.passes.graph.open_extents import HideOpenBounds
from compiler.passes.graph.order_dims import OrderDims
from compiler.passes.graph.order_slots import OrderSlots
from compiler.passes.graph.rows_as_images import RowsAsImages
from compiler.passes.graph.shapes_first import ShapesFirst
from compiler.passes.graph.share_buffers import ShareBuffers
from compiler.passes.graph.simplify_extents import SimplifyExtents
from compiler.passes.graph.slice_early import SliceEarly
from compiler.passes.graph.slice_heads import SliceHeads
from compiler.passes.graph.spread_apart import SpreadApart
from compiler.passes.graph.sum_squares import SumSquares
from compiler.passes.graph.views import Views, legalize_reshape
from compiler.passes.pack.conv import PackConv
from compiler.passes.pack.integer import PackInteger
from compiler.passes.pack.matmul import PackMatmul
from compiler.passes.pack.nbits import PackNBits
from compiler.passes.pack.pairs import PackPairs
from compiler.passes.pack.round_operands import RoundOperands
from compiler.passes.pack.round_weights import RoundWeights
from compiler.passes.pack.store_weights import StoreWeights
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit

_graph, _pack, _programs, _plan, _machine = (
    partial(FromTVM, phase)
    for phase in (
        Phase.GRAPH,
        Phase.PACK,
        Phase.TENSOR_PROGRAMS,
        Phase.MEMORY_PLAN,
        Phase.VIRTUAL_MACHINE,
    )
)

Rounding = RoundWeights | RoundOperands


def pipeline(
    target: Target,
    ranges: Ranges,
    rounding: Rounding | None = None,
    recall: Recall | None = None,
) -> tuple[Pass, ...]:
    """Every pass from an imported module to one that TVM's code generators accept, in order.

    rounding: of weights or operands, recall: of kernels of earlier builds; targets with grids have
    neither.
    """
    if target.device is not None:
        return for_grids(target, ranges)
    return for_processors(target, ranges, rounding, recall)


def for_processors(
    target: Target,
    ranges: Ranges,
    rounding: Rounding | None = None,
    recall: Recall | None = None,
) -> tuple[Pass, ...]:
    """The passes for targets whose kernels run on the cores of a processor."""
    unit, transform = VectorUnit.of(target), relax.transform
    return (
        _graph(transform.CanonicalizeBindings()),
        _graph(transform.EliminateCommonSubexpr()),
        ShapesFirst(),
        _graph(transform.DecomposeOpsForInference()),
        FoldLayout(),
        FoldConstants(),
        DropEmpty(),
        OneHotRows(),
        SliceEarly(),
        # Weights are compared with those of the file, so before any is changed or joined.
        *((rounding,) if isinstance(rounding, RoundWeights) else ()),
        FlushWeights(),
        GatherProducts(ranges),
        *((rounding,) if isinstance(rounding, RoundOperands) else ()),
        # Views first: the layout passes look through transposes, not through views.
        LiftViews(),
        RowsAsImages(),
        ChannelsLast(),
        LiftViews(transposes=True),
        SliceHeads(),
        # Attention reads projections through slices of heads, so these are brought into form first.
        CombineProjections(),
        FuseAttention(),
        *((StoreWeights.of(rounding),) if isinstance(rounding, RoundWeights) else ()),
        *((PackPairs(unit),) if isinstance(rounding, RoundOperands) else ()),
        # Each takes what its predecessors leave: integers first, since they look like float32.
        PackInteger(unit),
        PackNBits(unit),
        PackConv(unit, ranges),
        PackMatmul(unit),
        SumSquares(),
        _programs(relax.backend.DispatchSampling()),
        _programs(relax.backend.DispatchSortScan()),
        _programs(
            transform.LegalizeOps(
                {
                    "relax.reshape": legalize_reshape,
                    "relax.concat": legalize_concat,
                    "relax.logical_not": legalize_not,
                    "relax.nn.relu": legalize_relu,
                    "relax.nn.softmax": legalize_softmax,
                }
            )
        ),
        _programs(transform.AnnotateTIROpPattern()),
        # FuseOps trusts the marks, so they are corrected before it.
        CorrectPatterns(),
        BreakChains(),
        SpreadApart(),
        SimplifyExtents(),
        _programs(transform.FuseOps()),
        _programs(transform.FuseTIR()),
        OrderDims(),
        _programs(transform.DeadCodeElimination()),
        Views(),
        DefineFirst(),
        # What was compiled before needs no loops.
        *(() if recall is None else (RecallKernels(recall, target, ranges),)),
        # What families emit branches on extents, of which the ranges decide most.
        ScheduleKernels(unit),
        DecideBranches(ranges),
        CheckLowered(),
        AddRelease(),
        _plan(transform.RewriteDataflowReshape()),
        _plan(transform.ToNonDataflow()),
        _plan(transform.RemovePurityChecking()),
        _plan(transform.CallTIRRewrite()),
        HideOpenBounds(),
        _plan(transform.StaticPlanBlockMemory()),
        ShareBuffers(),
        # Notes are kept up to here, for the dump.
        DropKernelNotes(),
        CheckExtents(ranges),
        _machine(transform.LowerAllocTensor()),
        _machine(transform.KillAfterLastUse()),
        _machine(transform.LowerRuntimeBuiltin()),
        _machine(transform.ComputePrimValue()),
        _machine(transform.VMShapeLower()),
        OrderSlots(),
        _machine(transform.AttachGlobalSymbol()),
        NameChecks(),
    )


def for_grids(target: Target, ranges: Ranges) -> tuple[Pass, ...]:
    """The passes for targets whose kernels run on grids of threads."""
    device, transform = tvm.target.Target(target.to_tvm()), relax.transform
    in_browser = target.kind == "webgpu"
    legal = {"relax.concat": concat_of_few} if in_browser else {}
    return (
        _graph(transform.CanonicalizeBindings()),
        _graph(transform.EliminateCommonSubexpr()),
        _graph(transform.DecomposeOpsForInference()),
        *((PackWords(),) if in_browser else ()),
        UnpackNBits(),
        FoldLayout(),
        FoldConstants(),
        DropEmpty(),
        FlattenRows(),
        _pack(transform.CanonicalizeBindings()),
        _pack(transform.DeadCodeElimination()),
        _programs(relax.backend.DispatchSampling()),
        _programs(relax.backend.DispatchSortScan()),
        _programs(
            transform.LegalizeOps(
                {"relax.logical_not": legalize_not, "relax.nn.relu": legalize_relu, **legal}
            )
        ),
        _programs(transform.AnnotateTIROpPattern()),
        *((FewBuffers(),) if in_browser else ()),
        SimplifyExtents(),
        _programs(transform.FuseOps()),
        _programs(transform.FuseTIR()),
        OrderDims(),
        # A reshape that moves nothing needs no kernel.
        _programs(transform.RewriteDataflowReshape()),
        _programs(transform.DeadCodeElimination()),
        # WGSL has no 64-bit integers, and no infinity.
        *((Narrow(), FiniteLimits()) if in_browser else ()),
        SplitLowBatch(device),
        ScheduleOnGrid(device),
        SkipEmptyGrids(),
        CheckBound(),
        CheckLowered(),
        AddRelease(),
        _plan(transform.RewriteDataflowReshape()),
        _plan(transform.ToNonDataflow()),
        _plan(transform.RemovePurityChecking()),
        _plan(transform.CallTIRRewrite()),
        HideOpenBounds(),
        _plan(transform.StaticPlanBlockMemory()),
        DropKernelNotes(),
        # It finds the parts of a run that have fixed extents by their allocations.
        *((_machine(transform.RewriteCUDAGraph()),) if target.kind == "cuda" else ()),
        CheckExtents(ranges),
        _machine(transform.LowerAllocTensor()),
        _machine(transform.KillAfterLastUse()),
        _machine(transform.LowerRuntimeBuiltin()),
        _machine(transform.ComputePrimValue()),
        _machine(transform.VMShapeLower()),
        OrderSlots(),
        _machine(transform.AttachGlobalSymbol()),
        NameChecks(),
    )
