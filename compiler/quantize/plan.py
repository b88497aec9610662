"""The plan of what one library quantizes, decided before anything is: stored weights, and operands
of matmuls and convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from compiler.errors import ImportFailed
from compiler.ir.files.model_file import LoadedModel, LoadedScript
from compiler.ir.onnx.model.matmuls import INT8_LEVEL, matmul_labels
from compiler.ir.onnx.model.opsets import opset_of
from compiler.quantize.onnx import block_matmuls
from compiler.quantize.onnx.matmuls import MatmulQuantization
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from compiler.targets import Target
from relaxd.contract.options import Calibration, Precision, PrecisionOver, WeightForm
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    import onnx

    from compiler.ir.weights import FileWeight, QuantizedWeights
    from relaxd.contract.narrow import QuantizedLayers


@dataclass(frozen=True)
class QuantizationPlan:
    """The weights and layers of a library that are quantized, and how.

    matmuls: how the ONNX graph's are rewritten, before its import. layers, weights: those that the
    library quantizes, by the graph or by a pass; None where the request wants none, and until the
    plan is complete (`compiler.quantize.module_plan`). operands, file_weights: those that a pass
    may quantize. measured: by `fallback`, `smoothed` and `placed`, what was measured to decide, as
    numerics.json has it.
    """

    matmuls: MatmulQuantization = field(default_factory=MatmulQuantization)
    layers: QuantizedLayers | None = None
    weights: QuantizedWeights | None = None
    operands: frozenset[str] = frozenset()
    file_weights: Mapping[bytes, FileWeight] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)


def plan_graph(
    model: onnx.ModelProto, request: CompileRequest, matmuls: MatmulQuantization | None = None
) -> QuantizationPlan:
    """The plan, complete as far as the ONNX graph decides it: passes choose weights, and operands
    of bfloat16.

    matmuls: what samples and sensitivity decided; None before anything was measured.
    """
    chosen = matmuls or MatmulQuantization()
    if request.options.precision is Precision.BFLOAT16:
        return QuantizationPlan(operands=matmul_labels(model))
    if request.options.precision is Precision.INT8:
        layers = _layers_of(model, request, chosen).keeping(chosen.retained)
        # Beside rows of int8, passes cast the operands of attentions.
        attentions = request.options.precision_over is not PrecisionOver.KEEP
        is_plain = attentions and not block_matmuls.has_blocks(model)
        operands = matmul_labels(model) if is_plain else frozenset[str]()
        return QuantizationPlan(chosen, layers, operands=operands)
    if request.options.weights is not WeightForm.FLOAT32:
        from compiler.ir.onnx.model.weights import file_weights

        return QuantizationPlan(file_weights=file_weights(model))
    return QuantizationPlan()


def _layers_of(
    model: onnx.ModelProto, request: CompileRequest, chosen: MatmulQuantization
) -> QuantizedLayers:
    if block_matmuls.has_blocks(model):
        return block_matmuls.layers_of(model)
    static = request.options.calibration is Calibration.STATIC
    return RowMatmuls(model, chosen.scales, chosen.grids, static=static).layers


def quantize_graph(model: onnx.ModelProto, plan: QuantizationPlan) -> onnx.ModelProto:
    """The model with the matmuls quantized that the plan rewrites in the graph; a model with
    weights in blocks is changed in place.
    """
    if plan.layers is None:
        return model
    if block_matmuls.has_blocks(model):
        block_matmuls.set_level(model, 0, plan.matmuls.retained)
        return model
    matmuls = RowMatmuls(model, plan.matmuls.scales, plan.matmuls.grids)
    return matmuls.quantize(labels=plan.layers.layers)


def as_wanted(
    model: LoadedModel | LoadedScript, request: CompileRequest
) -> LoadedModel | LoadedScript:
    """The model whose matmuls by weights in blocks state that they round, where the request wants
    that: it is changed in place. Of a model without such blocks the plan rewrites matmuls by
    floats. Raises ImportFailed for a model without either.
    """
    if request.options.precision is not Precision.INT8 or isinstance(model, LoadedScript):
        return model
    if opset_of(model.proto.opset_import) < block_matmuls.LEAST_OPSET:
        raise _unroundable(f"the model's opset is older than {block_matmuls.LEAST_OPSET}")
    if block_matmuls.set_level(model.proto, INT8_LEVEL):
        if request.options.calibration is not Calibration.NONE:
            raise ImportFailed(
                "the model's weights are in blocks already, and what they multiply is rounded in "
                "blocks of a row",
                reason="calibration",
                field="options.calibration",
                hint="compile it with calibration=none",
            )
        return replace(model, file=None)
    if not _layers_of(model.proto, request, MatmulQuantization()).layers:
        raise _unroundable("no matmul or convolution of the model has constant weights to round")
    return model


def _unroundable(why: str) -> ImportFailed:
    return ImportFailed(
        f"{why}: there is nothing that precision int8 can round",
        reason="precision",
        field="options.precision",
        hint="compile it with precision=float32, or give a GGUF file or an ONNX model of opset 13 "
        "or newer whose weights are constants",
    )


def require_processor(request: CompileRequest, target: Target) -> None:
    """Raise ImportFailed for a target whose kernels are no processor's, where the request quantizes
    weights or operands.
    """
    asked = _asked(request)
    if asked is None or target.device is None:
        return
    name, what = asked
    raise ImportFailed(
        f"{what} are for processors, not for {target.name}",
        reason=name,
        field=f"options.{name}",
        hint=f"compile it with {name}=float32",
    )


def require_plain(request: CompileRequest) -> None:
    """Raises ImportFailed for a model that is no ONNX and is to be rounded."""
    asked = _asked(request)
    if asked is not None:
        name, what = asked
        raise ImportFailed(
            f"{what} are for ONNX models alone",
            reason=name,
            field=f"options.{name}",
            hint="export the module to ONNX",
        )


def _asked(request: CompileRequest) -> tuple[str, str] | None:
    """The option that rounds, and what it rounds."""
    options = request.options
    if options.precision is not Precision.FLOAT32:
        return "precision", f"operands of {options.precision}"
    if options.weights is not WeightForm.FLOAT32:
        return "weights", f"weights of {options.weights}"
    return None
