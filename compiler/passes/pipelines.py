"""The pipelines: one flat tuple of passes from an imported module down to the functions that code
generators take, for processors and for GPUs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from compiler.ir.imported import Ranges
from compiler.passes.check_lowered import CheckLowered
from compiler.passes.cpu.decide_branches import DecideBranches
from compiler.passes.cpu.recall import Recall, RecallKernels
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.framework.base import FromTVM, Pass, Phase
from compiler.passes.framework.checks import check_order
from compiler.passes.framework.kernel_notes import DropKernelNotes
from compiler.passes.framework.properties import Property
from compiler.passes.fusion.break_chains import BreakChains
from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.passes.fusion.legalize_concat import legalize_concat
from compiler.passes.fusion.spread_apart import SpreadApart
from compiler.passes.fusion.sum_squares import SumSquares
from compiler.passes.gpu.bound import CheckBound
from compiler.passes.gpu.few_buffers import FewBuffers, concat_of_few
from compiler.passes.gpu.finite import FiniteLimits
from compiler.passes.gpu.low_batch import SplitLowBatch
from compiler.passes.gpu.narrow import Narrow
from compiler.passes.gpu.pack_words import PackWords
from compiler.passes.gpu.rows import FlattenRows
from compiler.passes.gpu.schedule import ScheduleOnGrid
from compiler.passes.gpu.unpack_nbits import UnpackNBits
from compiler.passes.layout.channels_last import ChannelsLast
from compiler.passes.layout.fold_layout import FoldLayout
from compiler.passes.layout.rows_as_images import RowsAsImages
from compiler.passes.layout.views import Views, legalize_reshape
from compiler.passes.lower.functions.lower_intrinsics import LowerIntrinsics
from compiler.passes.lower.functions.make_c_functions import MakeCFunctions
from compiler.passes.lower.functions.name_by_position import NameByPosition
from compiler.passes.lower.functions.name_symbols import NameSymbols
from compiler.passes.lower.functions.outline_loops import OutlineLoops
from compiler.passes.lower.functions.prefix_symbols import PrefixSymbols
from compiler.passes.lower.graph.check_extents import CheckExtents
from compiler.passes.lower.graph.legalize_not import legalize_not
from compiler.passes.lower.graph.legalize_relu import legalize_relu
from compiler.passes.lower.graph.legalize_softmax import legalize_softmax
from compiler.passes.lower.graph.name_checks import NameChecks
from compiler.passes.lower.graph.shapes_first import ShapesFirst
from compiler.passes.lower.loops.flatten_buffers import FlattenBuffers
from compiler.passes.lower.loops.mark_no_alias import MarkNoAlias
from compiler.passes.lower.loops.multiply_reciprocals import MultiplyReciprocals
from compiler.passes.lower.loops.narrow_indices import NarrowIndices
from compiler.passes.lower.loops.saturate_conversions import SaturateConversions
from compiler.passes.lower.loops.serialize_loops import SerializeLoops
from compiler.passes.lower.loops.simplify_kernels import SimplifyKernels
from compiler.passes.lower.loops.truncate_divisions import TruncateDivisions
from compiler.passes.lower.loops.unroll_pairs import UnrollPairs
from compiler.passes.lower.loops.vectorize_loops import VectorizeLoops
from compiler.passes.memory.add_release import AddRelease
from compiler.passes.memory.share_buffers import ShareBuffers
from compiler.passes.pack.conv import PackConv
from compiler.passes.pack.integer import PackInteger
from compiler.passes.pack.matmul import PackMatmul
from compiler.passes.pack.nbits import PackNBits
from compiler.passes.pack.pairs import PackPairs
from compiler.passes.pack.recurrences import PackRecurrences
from compiler.passes.pack.round_operands import RoundOperands
from compiler.passes.pack.round_weights import RoundWeights
from compiler.passes.pack.store_weights import StoreWeights
from compiler.passes.simplify.combine_projections import CombineProjections
from compiler.passes.simplify.drop_empty import DropEmpty
from compiler.passes.simplify.flush_weights import FlushWeights
from compiler.passes.simplify.fold_constants import FoldConstants
from compiler.passes.simplify.gather_products import GatherProducts
from compiler.passes.simplify.lift_views import LiftViews
from compiler.passes.simplify.one_hot_rows import OneHotRows
from compiler.passes.simplify.simplify_extents import SimplifyExtents
from compiler.passes.simplify.slice_early import SliceEarly
from compiler.passes.simplify.slice_heads import SliceHeads
from compiler.passes.tvm_fixes.allow_unaligned import AllowUnaligned
from compiler.passes.tvm_fixes.broadcast_bits import BroadcastBits
from compiler.passes.tvm_fixes.correct_patterns import CorrectPatterns
from compiler.passes.tvm_fixes.define_first import DefineFirst
from compiler.passes.tvm_fixes.hide_open_bounds import HideOpenBounds
from compiler.passes.tvm_fixes.hoist_divisions import HoistDivisions
from compiler.passes.tvm_fixes.legalize_bfloat16 import LegalizeBfloat16
from compiler.passes.tvm_fixes.order_dims import OrderDims
from compiler.passes.tvm_fixes.order_slots import OrderSlots
from compiler.passes.tvm_fixes.rename_arguments import RenameArguments
from compiler.passes.tvm_fixes.skip_empty_grids import SkipEmptyGrids
from compiler.targets import ObjectFormat, Runtime, Target
from compiler.targets.architectures import architecture_of
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.options import Flavour

_graph, _pack, _programs, _plan, _machine, _loops, _functions, _device = (
    partial(FromTVM, phase)
    for phase in (
        Phase.GRAPH,
        Phase.PACK,
        Phase.TENSOR_PROGRAMS,
        Phase.MEMORY_PLAN,
        Phase.VIRTUAL_MACHINE,
        Phase.LOWERED_LOOPS,
        Phase.FUNCTIONS,
        Phase.DEVICE_FUNCTIONS,
    )
)

QuantizationPass = RoundWeights | RoundOperands


@dataclass(frozen=True)
class Interface:
    """How the functions of a library are called.

    backend: TVM's virtual machine, or a driver in C; symbols: begins those of a driver's kernels
    and of a system library; threads: whether loops may run over threads.
    """

    backend: Flavour = Flavour.VM
    symbols: str = ""
    threads: bool = True


DEFAULT = Interface()


def pipeline(
    target: Target,
    ranges: Ranges,
    quantization: QuantizationPass | None = None,
    recall: Recall | None = None,
    interface: Interface = DEFAULT,
) -> tuple[Pass, ...]:
    """Every pass from an imported module to functions that TVM's code generators accept, in order.

    quantization: of weights or operands, recall: of kernels of earlier builds; targets with grids
    have neither. Raises PassError for an order in which a pass lacks what it requires.
    """
    if target.device is not None:
        steps = (*for_grids(target, ranges, interface), *_grid_functions(target))
    elif interface.backend is Flavour.STANDALONE:
        graph = for_processors(target, ranges, quantization, recall, interface)
        steps = (*graph, *_c_functions(target, interface))
    else:
        graph = for_processors(target, ranges, quantization, recall, interface)
        steps = (*graph, *_packed_functions(target))
    check_order(steps)
    return steps


def has_object_by_kernel(target: Target) -> bool:
    """Checks that each kernel is an object of its own.

    The functions that a system library registers are one module's; and objects for Windows cannot
    have conversions of 16-bit floats each.
    """
    platform = target.platform
    return (
        target.device is None
        and platform.runtime is not Runtime.LINKED
        and platform.object_format is not ObjectFormat.COFF
    )


def for_processors(
    target: Target,
    ranges: Ranges,
    quantization: QuantizationPass | None = None,
    recall: Recall | None = None,
    interface: Interface = DEFAULT,
) -> tuple[Pass, ...]:
    """The passes for targets whose kernels run on the cores of a processor, down to the loops of
    kernels and what calls them.
    """
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
        *((quantization,) if isinstance(quantization, RoundWeights) else ()),
        FlushWeights(),
        GatherProducts(ranges),
        *((quantization,) if isinstance(quantization, RoundOperands) else ()),
        # Views first: the layout passes look through transposes, not through views.
        LiftViews(),
        RowsAsImages(),
        ChannelsLast(),
        LiftViews(transposes=True),
        SliceHeads(),
        # Attention reads projections through slices of heads, so these are brought into form first.
        CombineProjections(),
        FuseAttention(),
        *((StoreWeights.of(quantization),) if isinstance(quantization, RoundWeights) else ()),
        *((PackPairs(unit),) if isinstance(quantization, RoundOperands) else ()),
        # Each takes what its predecessors leave: integers first, since they look like float32.
        PackInteger(unit),
        PackRecurrences(unit),
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
            ),
            ensures=(Property.TENSOR_PROGRAMS,),
        ),
        _programs(transform.AnnotateTIROpPattern(), ensures=(Property.OP_PATTERNS,)),
        RenameArguments(),
        # FuseOps trusts the marks, so they are corrected before it.
        CorrectPatterns(),
        BreakChains(),
        SpreadApart(),
        SimplifyExtents(),
        _programs(transform.FuseOps(), requires=(Property.OP_PATTERNS,)),
        _programs(transform.FuseTIR(), ensures=(Property.FUSED,)),
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
        _plan(transform.ToNonDataflow(), ensures=(Property.NO_DATAFLOW,)),
        _plan(transform.RemovePurityChecking()),
        _plan(
            transform.CallTIRRewrite(),
            requires=(Property.TENSOR_PROGRAMS, Property.NO_DATAFLOW),
            ensures=(Property.DESTINATIONS,),
        ),
        HideOpenBounds(),
        _plan(transform.StaticPlanBlockMemory(), requires=(Property.DESTINATIONS,)),
        ShareBuffers(),
        *_virtual_machine(target, ranges, interface),
    )


def for_grids(target: Target, ranges: Ranges, interface: Interface = DEFAULT) -> tuple[Pass, ...]:
    """The passes for targets whose kernels run on grids of threads, down to the loops of kernels
    and what calls them.
    """
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
            ),
            ensures=(Property.TENSOR_PROGRAMS,),
        ),
        _programs(transform.AnnotateTIROpPattern(), ensures=(Property.OP_PATTERNS,)),
        *((FewBuffers(),) if in_browser else ()),
        SimplifyExtents(),
        _programs(transform.FuseOps(), requires=(Property.OP_PATTERNS,)),
        _programs(transform.FuseTIR(), ensures=(Property.FUSED,)),
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
        _plan(transform.ToNonDataflow(), ensures=(Property.NO_DATAFLOW,)),
        _plan(transform.RemovePurityChecking()),
        _plan(
            transform.CallTIRRewrite(),
            requires=(Property.TENSOR_PROGRAMS, Property.NO_DATAFLOW),
            ensures=(Property.DESTINATIONS,),
        ),
        HideOpenBounds(),
        _plan(transform.StaticPlanBlockMemory(), requires=(Property.DESTINATIONS,)),
        *_virtual_machine(target, ranges, interface),
    )


_HOST_OF_GRIDS = "llvm"


def _virtual_machine(target: Target, ranges: Ranges, interface: Interface) -> tuple[Pass, ...]:
    """The passes from planned memory to calls of the virtual machine; none where C or a page calls
    the kernels.
    """
    if interface.backend is Flavour.STANDALONE or target.launches:
        return ()
    transform = relax.transform
    is_system_library = target.platform.runtime is Runtime.LINKED and interface.symbols
    return (
        # Notes are kept up to here, for the dump.
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
        _machine(transform.AttachGlobalSymbol(), ensures=(Property.SYMBOLS,)),
        NameChecks(),
        *((PrefixSymbols(interface.symbols),) if is_system_library else ()),
    )


def _bound(target: Target) -> FromTVM:
    """BindTarget; a processor is its own host."""
    machine = tvm.target.Target(target.to_tvm())
    if target.device is None:
        machine = machine.with_host(machine)
    elif not target.launches:
        machine = machine.with_host(machine.host or _HOST_OF_GRIDS)
    return _loops(tirx.transform.BindTarget(machine), ensures=(Property.TARGETS,))


def _lowered_loops(target: Target) -> tuple[Pass, ...]:
    """The passes from scheduled loops to flat ones over vectors, whatever interface functions get.

    CompactBufferAllocation is left out, for which TVM takes half a minute on an unrolled kernel:
    scratch buffers are as large as they need to be. So are LoopPartition and HoistIfThenElse:
    conditions stand where they belong. And so are StmtSimplify (but for `SimplifyKernels`),
    RenormalizeSplitPattern, CommonSubexprElim and RemoveNoOp: LLVM does that work anyway.
    """
    schedule, lower = s_tir.transform, tirx.transform
    is_bare, saturating = target.platform.bare, architecture_of(target.arch).saturating
    return (
        _loops(schedule.CanonicalizeLoop()),
        _loops(schedule.LowerInitBlock()),
        _loops(schedule.PlanAndUpdateBufferAllocationLocation()),
        _loops(schedule.ConvertBlocksToOpaque()),
        _loops(schedule.LowerMatchBuffer()),
        _loops(schedule.LowerOpaqueBlock(), ensures=(Property.NO_BLOCKS,)),
        FlattenBuffers(),
        # Addresses of micro-controllers have 32 bits.
        *((NarrowIndices(),) if is_bare else ()),
        AllowUnaligned(),
        HoistDivisions(),
        LegalizeBfloat16(),
        *((UnrollPairs(),) if is_bare else ()),
        *((SaturateConversions(saturating),) if saturating and not target.vector_bits else ()),
        _loops(lower.NarrowDataType(32), requires=(Property.FLAT_BUFFERS,)),
        VectorizeLoops(),
        BroadcastBits(),
        _loops(lower.UnrollLoop()),
        SimplifyKernels(),
        _loops(schedule.RewriteUnsafeSelect()),
        _loops(lower.FP8ComputeLegalize()),
        _loops(lower.VerifyMemory(), requires=(Property.TARGETS,)),
    )


def _packed_functions(target: Target) -> tuple[Pass, ...]:
    """The lowering of loops to functions with the interface of TVM's calls.

    AnnotateEntryFunc is left out: it gives a function that is alone in its module another symbol,
    and the function's code would depend on what else is compiled with it.
    """
    lower, by_kernel = tirx.transform, has_object_by_kernel(target)
    return (
        MarkNoAlias(),
        _bound(target),
        *_lowered_loops(target),
        *((TruncateDivisions(), MultiplyReciprocals()) if by_kernel else ()),
        _functions(lower.SplitHostDevice(), requires=(Property.TARGETS,)),
        NameByPosition(),
        _functions(
            lower.MakePackedAPI(),
            requires=(Property.TARGETS, Property.SYMBOLS),
            ensures=(Property.PACKED_FUNCTIONS,),
        ),
        _functions(lower.FP8StorageLegalize()),
        _functions(lower.BF16StorageLegalize(), requires=(Property.NO_BFLOAT16_ARITHMETIC,)),
        OutlineLoops(with_symbols=not by_kernel),
        _functions(lower.LowerTVMBuiltin()),
        LowerIntrinsics() if by_kernel else _functions(lower.LowerIntrin()),
    )


def _c_functions(target: Target, interface: Interface) -> tuple[Pass, ...]:
    """The lowering of loops to C functions."""
    lower = tirx.transform
    return (
        MarkNoAlias(),
        NameSymbols(f"{interface.symbols}_k_"),
        _bound(target),
        *(() if interface.threads else (SerializeLoops(),)),
        *_lowered_loops(target),
        TruncateDivisions(),
        MultiplyReciprocals(),
        MakeCFunctions(),
        _functions(lower.FP8StorageLegalize()),
        _functions(lower.BF16StorageLegalize(), requires=(Property.NO_BFLOAT16_ARITHMETIC,)),
        _functions(lower.LowerTVMBuiltin()),
        LowerIntrinsics(),
    )


def _grid_functions(target: Target) -> tuple[Pass, ...]:
    """TVM's lowering for grids of threads, to functions of the device and those that launch them.

    In a browser our own C launches shaders, and UnrollLoop is left out: the schedules' pragmas made
    shaders of 90 kB, one of which Chromium's software adapter compiled for more than a minute; as a
    loop it takes a third of a second. So is StmtSimplify at the end, which writes out what
    expressions share.
    """
    schedule, lower = s_tir.transform, tirx.transform
    in_browser = target.kind == "webgpu"

    def elsewhere(make: Any, phase: Any = _loops) -> tuple[Pass, ...]:
        return () if in_browser else (phase(make()),)

    return (
        NameSymbols() if in_browser else MarkNoAlias(),
        _bound(target),
        SerializeLoops(),
        _loops(schedule.CanonicalizeLoop()),
        _loops(schedule.LowerCrossThreadReduction()),
        _loops(schedule.LowerInitBlock()),
        _loops(schedule.PlanAndUpdateBufferAllocationLocation()),
        _loops(schedule.ConvertBlocksToOpaque()),
        _loops(schedule.LiftThreadBinding()),
        _loops(schedule.ManifestSharedMemoryLocalStage()),
        _loops(schedule.CompactBufferAllocation()),
        *elsewhere(schedule.LowerAutoCopy),
        _loops(schedule.UnifyThreadBinding()),
        _loops(schedule.LowerMatchBuffer()),
        _loops(schedule.StmtSimplify()),
        *elsewhere(schedule.InjectPermutedLayout),
        _loops(schedule.AnnotateIrregularLoop()),
        _loops(schedule.InjectSoftwarePipeline()),
        *elsewhere(schedule.TransformMmaBufferLayout),
        _loops(schedule.LowerOpaqueBlock(), ensures=(Property.NO_BLOCKS,)),
        _loops(
            lower.FlattenBuffer(),
            requires=(Property.NO_BLOCKS,),
            ensures=(Property.FLAT_BUFFERS,),
        ),
        LegalizeBfloat16() if in_browser else _loops(lower.BF16ComputeLegalize()),
        _loops(lower.NarrowDataType(32)),
        _loops(schedule.LoopPartition()),
        _loops(lower.VectorizeLoop(True), ensures=(Property.NO_VECTOR_LOOPS,)),
        _loops(schedule.InjectVirtualThread()),
        _loops(schedule.InjectDoubleBuffer()),
        _loops(lower.StorageRewrite()),
        _loops(schedule.HoistIfThenElse()),
        *elsewhere(lower.UnrollLoop),
        _loops(schedule.RenormalizeSplitPattern()),
        _loops(lower.StmtSimplify()),
        _loops(lower.RemoveNoOp()),
        _loops(schedule.RewriteUnsafeSelect()),
        _loops(lower.CommonSubexprElim()),
        *elsewhere(lower.FP8ComputeLegalize),
        *elsewhere(schedule.VerifyVTCMLimit),
        *elsewhere(schedule.LowerVtcmAlloc),
        _loops(lower.VerifyMemory(), requires=(Property.TARGETS,)),
        *elsewhere(lower.AnnotateEntryFunc),
        _loops(schedule.ThreadSync("shared")),
        _loops(schedule.ThreadSync("shared.dyn")),
        _loops(schedule.ThreadSync("warp")),
        *elsewhere(schedule.InferFragment),
        _loops(schedule.LowerThreadAllreduce()),
        _loops(schedule.MergeSharedMemoryAllocations()),
        _loops(lower.SplitHostDevice(), requires=(Property.TARGETS,)),
        *elsewhere(lower.MakePackedAPI),
        *elsewhere(lower.FP8StorageLegalize),
        *elsewhere(lower.BF16StorageLegalize),
        *elsewhere(lower.LowerTVMBuiltin, _functions),
        *elsewhere(lower.LowerIntrin, _functions),
        *((_device(lower.FP8StorageLegalize()),) if in_browser else ()),
        *((_device(lower.BF16StorageLegalize()),) if in_browser else ()),
        _device(lower.LowerWarpMemory()),
        *elsewhere(lower.StmtSimplify, _device),
        _device(lower.LowerIntrin()),
    )
