"""Rounds the operands of matmuls and convolutions by constant weights, and of the matmuls of
attentions, to bfloat16.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.ir.graph.origins import position_of
from compiler.ir.imported import Ranges
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.passes.pack.attentions import AttentionMatmul, find_attention_matmuls
from compiler.passes.pack.conv import Window, suits_winograd
from compiler.passes.pack.pairs import round_to_bfloat
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import op_name
from relaxd.contract.narrow import QuantizedLayers, Unit
from relaxd.contract.options import Precision

LEAST_DEPTH = 16
LEAST_COLUMNS = 8
"""Smaller products leave most of a panel or of a pair's instruction unused."""
_ELSEWHERE = "it is part of another operator, or stands in a loop or a branch"
_OPERATORS = ("relax.matmul", "relax.nn.conv2d", "relax.nn.conv3d")


@dataclass(frozen=True)
class OperandSites:
    """layers: by name, in the order of the model, the matmuls of a module whose operands can be
    cast, each with those that round with it; objections: why others stay float32.
    """

    layers: Mapping[str, Unit]
    objections: Mapping[str, str]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The layers that round together or not at all."""
        return tuple(dict.fromkeys(self.layers.values()))


@dataclass(frozen=True)
class RoundOperands(ModulePass):
    """Writes casts to bfloat16 and back before both operands, weights being rounded at once, so
    that graph passes see matmuls and convolutions of float32; `PackPairs` narrows them.

    labels: the model's nodes by position; matmuls: those of them that the reference can be given
    with the same casts. retained: layers that stay float32 all the same, with the reasons. beside:
    what the graph has quantized to int8, so that attentions alone are rounded here; None otherwise.
    """

    unit: VectorUnit
    ranges: Ranges
    labels: tuple[str, ...]
    matmuls: frozenset[str]
    retained: Mapping[str, str] = field(default_factory=dict)
    beside: QuantizedLayers | None = None
    name = "round_operands"
    phase = Phase.GRAPH

    def find(self, module: tvm.IRModule) -> OperandSites:
        """The matmuls of the module whose operands can be cast, `retained` among them."""
        rewriter = _Rewriter(module, self, is_dry=True)
        rewrite_functions(rewriter)
        layers = {name: rewriter.layers[name] for name in self.labels if name in rewriter.layers}
        objections = {
            name: rewriter.objections[name] for name in self.labels if name in rewriter.objections
        }
        return OperandSites(layers, objections)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module, self))

    def describe(self, sites: OperandSites) -> QuantizedLayers:
        """State which layers of a module with these sites round, and why others do not."""
        reasons = {**sites.objections, **self.retained}
        layers = tuple(name for name in sites.layers if name not in self.retained)
        others = {name: reasons[name] for name in self.labels if name in reasons}
        if self.beside is None:
            return QuantizedLayers(Precision.BFLOAT16, layers, others)
        before = {name: why for name, why in self.beside.kept.items() if name not in layers}
        return replace(self.beside, kept={**before, **others}, bfloat16=layers)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(
        self, module: tvm.IRModule, options: RoundOperands, *, is_dry: bool = False
    ) -> None:
        """is_dry: look for matmuls whose operands can be cast, and change none."""
        super().__init__(module)
        self.options, self.is_dry = options, is_dry
        self.layers: dict[str, Unit] = {}
        self.objections: dict[str, str] = {}
        self.rounded: dict[Any, Any] = {}
        self.weights: dict[int, tuple[Any, Any]] = {}
        self.attentions = find_attention_matmuls(module, options.unit)

    def visit_dataflow_block_(self, block: Any) -> Any:
        # Values of a block are not seen outside of it.
        self.rounded = {}
        return super().visit_dataflow_block_(block)

    def visit_binding_block_(self, block: Any) -> Any:
        self.rounded = {}
        return super().visit_binding_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        if op_name(call) not in _OPERATORS or str(call.ty.dtype) != "float32":
            super().visit_var_binding_(binding)
            return
        label, constant = self._label(binding.var), self.constant_of(call.args[1])
        matmul = self.attentions.get(binding.var)
        if self.options.beside is not None and (constant is not None or matmul is None):
            super().visit_var_binding_(binding)
            return
        why = (
            self._objection(call, constant, label)
            if constant is not None or matmul is None
            else self._objection_to_attention(matmul, label)
        )
        if why is not None:
            self.objections |= {label: why} if label else {}
        else:
            self.layers[label] = self._unit(label, matmul if constant is None else None)
        if why is not None or self.is_dry or label in self.options.retained:
            super().visit_var_binding_(binding)
            return
        left, right = (self.visit_expr(arg) for arg in call.args)
        right = self._cast(right) if constant is None else self._weight(constant)
        left = self._cast(left)
        self.rebind(binding.var, relax.Call(call.op, [left, right], call.attrs, call.ty_args))

    def _label(self, var: Any) -> str:
        """The node that the variable comes from, empty where that is not known."""
        position = position_of(str(var.name))
        return "" if position is None else self.options.labels[position]

    def _unit(self, label: str, matmul: AttentionMatmul | None) -> Unit:
        """The product, and the other one of its attention, in the order of the model."""
        labels = {label} if matmul is None else {label, self._label(matmul.partner)}
        return tuple(sorted(labels, key=self.options.labels.index))

    def _objection_to_attention(self, matmul: AttentionMatmul, label: str) -> str | None:
        """Why the operands of both matmuls of an attention stay float32."""
        if {label, self._label(matmul.partner)} <= self.options.matmuls:
            return matmul.objection
        return _ELSEWHERE

    def _objection(self, call: Any, constant: Any, label: str) -> str | None:
        """Why the operands of a product stay float32, None where they are rounded."""
        if constant is None:
            return "neither side is constant"
        if label not in self.options.matmuls:
            return _ELSEWHERE
        weight = constant.value.numpy()
        if np.array_equal(weight, np.rint(weight)):
            return "its weights are integers"
        if op_name(call) == "relax.matmul":
            if weight.ndim != 2 or call.args[0].ty.ndim < 2:
                return "its weights are no matrix"
            depth, columns = weight.shape
        else:
            why = self._objection_to_conv(call, weight)
            if why is not None:
                return why
            columns, depth = len(weight), weight[0].size
        if depth < LEAST_DEPTH:
            return f"its sums have fewer than {LEAST_DEPTH} products"
        return f"it has fewer than {LEAST_COLUMNS} columns" if columns < LEAST_COLUMNS else None

    def _objection_to_conv(self, call: Any, weight: np.ndarray) -> str | None:
        if weight.ndim != 4:
            return "it is a convolution over volumes"
        if call.attrs.groups != 1:
            return "its channels are in groups"
        if (str(call.attrs.data_layout), str(call.attrs.kernel_layout)) != ("NCHW", "OIHW"):
            return "its layout is unknown"
        images, _, height, width = call.ty.shape.values
        window = Window.of(call.attrs, weight.shape[2:])
        sizes = images, height, width
        channels = weight.shape[1]
        if suits_winograd(
            self.options.unit, self.options.ranges, sizes, len(weight), channels, window
        ):
            return "Winograd's algorithm in float32 takes fewer multiplications"
        return None

    def _cast(self, value: Any) -> Any:
        """The value cast to bfloat16 and back, once for all that multiply it."""
        if value not in self.rounded:
            bfloats = self.builder_.emit(relax.op.astype(value, "bfloat16"))
            self.rounded[value] = self.builder_.emit(relax.op.astype(bfloats, "float32"))
        return self.rounded[value]

    def _weight(self, constant: Any) -> Any:
        """The rounded constant; layers that share one share it."""
        key = constant.__hash__()
        if key not in self.weights:
            bfloats = relax.const(round_to_bfloat(constant.value.numpy()))
            self.weights[key] = (constant, bfloats)
        return self.weights[key][1]
