"""Rounds the weights of matmuls and of tables to what a narrower form can hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.ir.ops.quantized.block_matmul import HALF
from compiler.ir.ops.quantized.quantize_weights import (
    BITS,
    BLOCK,
    apply_quantization,
    bytes_of,
    objection,
)
from compiler.ir.weights import LEAST, FileWeight, QuantizedWeights, WeightQuantization, digest_of
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, is_weight, rewrite_functions
from compiler.passes.pack.tied import calls_of, table_of_rows
from compiler.tir.exprs import op_name
from relaxd.contract.bundle.weights import StoredWeight, StoredWeights
from relaxd.contract.options import Calibration, WeightForm

Array = np.ndarray[Any, Any]
_UNUSED = "no matmul multiplies by it, and no rows of it are read"
_SHARED = "other operators read it too"
_BOTH_WAYS = "sums go along its rows and along its columns"


@dataclass(frozen=True)
class WeightSites:
    """Where a module has weights of its file that can be quantized to a form.

    constants: by digest, those of the module that hold the weight, each with the axis that sums go
    along; nearest: each with its numbers to the nearest, in the order of the file; objections: why
    others stay as they are.
    """

    form: WeightForm
    file_weights: Mapping[bytes, FileWeight]
    constants: Mapping[bytes, Sequence[tuple[Any, int]]]
    nearest: Mapping[bytes, WeightQuantization]
    objections: Mapping[bytes, str]

    def describe(
        self, roundings: Mapping[bytes, WeightQuantization], calibration: Calibration
    ) -> QuantizedWeights:
        """State which of the file's weights are quantized, and why others are not."""
        layers: dict[str, StoredWeight] = {}
        others: dict[str, str] = {}
        for key, weight in self.file_weights.items():
            if key not in roundings:
                others |= dict.fromkeys(weight.names, self.objections.get(key, _UNUSED))
                continue
            quantization = roundings[key]
            columns, depth = weight.shape[1 - quantization.axis], weight.shape[quantization.axis]
            stored = StoredWeight(
                self.form,
                weight.shape,
                bytes_of(self.form, columns, depth),
                quantization.nearest,
            )
            layers |= dict.fromkeys(weight.names, stored)
        block = 1 if BITS[self.form] == HALF else BLOCK
        stored_weights = StoredWeights(self.form, block, layers, others, calibration)
        return QuantizedWeights(stored_weights, roundings)


@dataclass(frozen=True)
class RoundWeights(ModulePass):
    """Replaces large weights that the model's file holds by their rounded values, still float32, so
    that passes over matmuls see what they know; `StoreWeights` narrows them.

    file_weights: by digest. One that is not found there, as it was computed from others, stays as
    it is: the reference could not be given its rounded values. sites, roundings: what was planned
    for the module that it is given; None for every weight that can be, to the nearest. calibrated:
    some roundings are by samples.
    """

    form: WeightForm
    file_weights: Mapping[bytes, FileWeight]
    sites: WeightSites | None = None
    roundings: Mapping[bytes, WeightQuantization] | None = None
    calibrated: bool = False
    name = "round_weights"
    phase = Phase.GRAPH

    def find(self, module: tvm.IRModule) -> WeightSites:
        """The weights of the module that can be quantized."""
        uses = _uses(_Rewriter(module), module, self.file_weights)
        objections = {
            key: why
            for key, use in uses.items()
            if (why := use.objection or objection(use.constants[0][0].value.numpy(), self.form))
            is not None
        }
        nearest = {
            key: WeightQuantization(self.form, min(uses[key].axes))
            for key in self.file_weights
            if key in uses and key not in objections
        }
        constants = {key: tuple(uses[key].constants) for key in nearest}
        return WeightSites(self.form, self.file_weights, constants, nearest, objections)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        sites = self.sites or self.find(module)
        roundings = sites.nearest if self.roundings is None else self.roundings
        rewriter = _Rewriter(module)
        for key, quantization in roundings.items():
            for constant, axis in sites.constants[key]:
                quantized = _quantize(constant.value.numpy(), axis, quantization)
                rewriter.replacements[constant.__hash__()] = relax.const(quantized)
        return rewrite_functions(rewriter)


@dataclass
class _Use:
    """constants: those of the module that hold one weight of the file, each with the axis that sums
    go along; axes: the same in the file; shared: whether other operators read one.
    """

    constants: list[tuple[Any, int]] = field(default_factory=list)
    axes: set[int] = field(default_factory=set)
    shared: bool = False

    @property
    def objection(self) -> str | None:
        """Why the weight cannot be rounded, None where it can."""
        if self.shared or not self.axes:
            return _SHARED if self.axes else _UNUSED
        return _BOTH_WAYS if len(self.axes) > 1 else None


def _uses(
    rewriter: Any, module: Any, file_weights: Mapping[bytes, FileWeight]
) -> dict[bytes, _Use]:
    """How the module uses the file's weights, by digest."""
    uses: dict[bytes, _Use] = {}
    seen: dict[int, tuple[Any, tuple[bytes, bool] | None]] = {}
    for call in calls_of(module):
        for constant, axis in _operands(rewriter, module, call):
            handle = constant.__hash__()
            if handle not in seen:
                seen[handle] = constant, _find_in_file(constant.value.numpy(), file_weights)
            origin = seen[handle][1]
            if origin is None:
                continue
            use = uses.setdefault(origin[0], _Use())
            use.shared |= axis is None
            if axis is not None:
                use.constants.append((constant, axis))
                use.axes.add(1 - axis if origin[1] else axis)
    return uses


def _operands(rewriter: Any, module: Any, call: Any) -> Iterator[tuple[Any, int | None]]:
    """The large constant matrices that a call reads, each with the axis that sums go along, or with
    None where the call is neither a matmul nor a read of rows.
    """
    multiplies = op_name(call) == "relax.matmul" and call.args[0].ty.ndim >= 2
    reads = table_of_rows(rewriter, module, call) is not None
    for position, argument in enumerate(_flat(call.args)):
        constant = rewriter.constant_of(argument)
        if not is_weight(constant) or np.prod(constant.value.shape, dtype=object) < LEAST:
            continue
        if multiplies and position == 1:
            yield constant, 0
        else:
            yield constant, 1 if reads else None


def _quantize(array: Array, axis: int, quantization: WeightQuantization) -> Array:
    """A constant of the module, whose sums go along `axis`, after the rounding of the file's
    weight that it is.
    """
    if axis == quantization.axis:
        return apply_quantization(array, quantization)
    return np.ascontiguousarray(apply_quantization(array.T, quantization).T)


def _flat(arguments: Any) -> Iterator[Any]:
    for argument in arguments:
        yield from argument.fields if isinstance(argument, relax.Tuple) else (argument,)


def _find_in_file(
    array: Array, file_weights: Mapping[bytes, FileWeight]
) -> tuple[bytes, bool] | None:
    """The digest of the file's weight that the matrix is, and whether it is transposed."""
    shapes = {weight.shape for weight in file_weights.values()}
    for form, transposed in ((array, False), (array.T, True)):
        if form.shape in shapes and (key := digest_of(form)) in file_weights:
            return key, transposed
    return None


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.replacements: dict[int, Any] = {}

    def visit_generic_const_(self, constant: Any) -> Any:
        return self.replacements.get(constant.__hash__(), constant)
