"""Decides what a library quantizes beyond its model: stored weights, rows of KV caches, and
operands of matmuls and convolutions; and which references judge it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.errors import ImportFailed
from compiler.ir.files.model_file import LoadedModel, LoadedScript
from compiler.ir.onnx.quantize import block_matmuls
from compiler.ir.onnx.quantize.matmuls import MatmulQuantization
from compiler.ir.onnx.quantize.row_matmuls import RowMatmuls
from compiler.targets import Target
from compiler.verify.quantization_changes import CACHE, PRECISION, WEIGHTS
from compiler.verify.reference.quantized import (
    with_operands,
    with_quantized_rows,
    with_quantized_weights,
    with_stored_caches,
)
from compiler.verify.sides import Reference
from compiler.verify.uncertainty import BLOCK_PERTURBATIONS, PERTURBATIONS, Quantization
from relaxd.contract.options import CacheForm, Calibration, Precision, PrecisionOver, WeightForm
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    from compiler.ir.imported import CallerState, Imported
    from compiler.ir.weights import QuantizedWeights as RoundedWeights
    from compiler.isolation.step import Record
    from compiler.passes.pack.round_operands import Keep
    from compiler.passes.pack.round_weights import Calibrate
    from compiler.passes.pipelines import QuantizationPass
    from relaxd.contract.narrow import QuantizedLayers


@dataclass
class Outcome:
    """The weights and layers that the pass quantized; fallback: what was measured to choose layers
    that stay as they are; chosen: what samples decided about matmuls that the import quantizes;
    smoothing, static_grids: what was measured to choose its scales and its grids.
    """

    weights: RoundedWeights | None = None
    layers: QuantizedLayers | None = None
    fallback: Record | None = None
    chosen: MatmulQuantization = field(default_factory=MatmulQuantization)
    smoothing: list[Record] | None = None
    static_grids: list[Record] | None = None

    def note_weights(self, weights: RoundedWeights) -> None:
        """Record what became of the weights, once the pass has run."""
        self.weights = weights

    def note_layers(self, layers: QuantizedLayers) -> None:
        """Keeps it."""
        self.layers = layers


def as_wanted(
    model: LoadedModel | LoadedScript, request: CompileRequest
) -> LoadedModel | LoadedScript:
    """The model whose matmuls by weights in blocks state that they round, where the request wants
    that: it is changed in place. Of a model without such blocks the import rounds products by
    floats. Raises ImportFailed for a model without either.
    """
    if request.options.precision is not Precision.INT8 or isinstance(model, LoadedScript):
        return model
    if block_matmuls.opset_of(model.proto) < block_matmuls.LEAST_OPSET:
        raise _unroundable(f"the model's opset is older than {block_matmuls.LEAST_OPSET}")
    if block_matmuls.set_level(model.proto, block_matmuls.INT8_LEVEL):
        if request.options.calibration is not Calibration.NONE:
            raise ImportFailed(
                "the model's weights are in blocks already, and what they multiply is rounded in "
                "blocks of a row",
                reason="calibration",
                field="options.calibration",
                hint="compile it with calibration=none",
            )
        return replace(model, built=True)
    static = request.options.calibration is Calibration.STATIC
    if not RowMatmuls(model.proto, static=static).layers.layers:
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


def choose_pass(
    request: CompileRequest,
    imported: Imported,
    target: Target,
    outcome: Outcome,
    calibrate: Calibrate | None = None,
    keep: Keep | None = None,
) -> QuantizationPass | None:
    """The pass that quantizes weights or operands, None where the request wants none; `outcome` is
    told what became of them. Raises ImportFailed for a target that would keep them as they are.

    calibrate: where weights are to be calibrated; None rounds them to nearest. keep: chooses layers
    that stay as they are, where passes round operands.
    """
    asked = _asked(request)
    if asked is None:
        return None
    require_processor(request, target)
    if imported.layers is not None:
        # The import has rounded already, but for attentions.
        outcome.note_layers(imported.layers)
        if not imported.matmuls or request.options.precision_over is PrecisionOver.KEEP:
            return None
    if asked[0] == "precision":
        from compiler.passes.pack.round_operands import RoundOperands
        from compiler.targets.vector_unit import VectorUnit

        return RoundOperands.of(imported, VectorUnit.of(target), outcome.note_layers, keep)
    from compiler.passes.pack.round_weights import RoundWeights

    return RoundWeights(request.options.weights, imported.weights, outcome.note_weights, calibrate)


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


def references_of(
    original: Reference, outcome: Outcome, kv_caches: CallerState | None, scratch: Path
) -> tuple[Reference, tuple[Quantization, ...]]:
    """The reference that rounds what the library does, and for each rounding what that is compared
    with; the original alone where nothing is rounded.

    kv_caches: those that are in place; the reference that rounds all the rest tells what storing
    them in fewer bits changes.
    """
    plain, quantization = _references_of(original, outcome, scratch)
    others = () if quantization is None else (quantization,)
    if kv_caches is None or kv_caches.state.stored is None:
        return plain, others
    references = []
    for one in _stored(original, kv_caches, scratch / "caches"):
        folder = one.model.with_suffix("")
        folder.mkdir()
        references.append(_references_of(one, outcome, folder))
    (reference, own), *moved = references
    # Perturbing numbers before they are rounded moves the rows that are computed from them, too.
    perturbed = own.perturbed if own and own.perturbed else tuple(one for one, _ in moved)
    caches = Quantization(plain, CACHE, perturbed)
    return reference, (*(replace(one, perturbed=()) for one in others), caches)


def _stored(original: Reference, kv_caches: CallerState, folder: Path) -> tuple[Reference, ...]:
    """The original with quantized caches, as it is and perturbed."""
    assert kv_caches.state.stored is not None
    folder.mkdir()
    dtypes = {spec.name: spec.dtype for spec in kv_caches.inputs}
    caches = [one.output for one in kv_caches.state.caches if dtypes[one.input] == "float32"]
    form = kv_caches.state.stored
    # Of rows in bytes it is the greatest number of each that the others are rounded beside.
    perturbations = (0.0, *(BLOCK_PERTURBATIONS if form is CacheForm.INT8 else PERTURBATIONS))
    paths = with_stored_caches(original.model, caches, original.consts, form, perturbations, folder)
    return tuple(replace(original, model=path) for path in paths)


def _references_of(
    original: Reference, outcome: Outcome, scratch: Path
) -> tuple[Reference, Quantization | None]:
    """`references_of`, of weights and operands."""
    if outcome.weights is not None:
        path = with_quantized_weights(original.model, outcome.weights.roundings, scratch)
        return replace(original, model=path), Quantization(original, WEIGHTS)
    if outcome.layers is None:
        return original, None
    layers = outcome.layers.layers
    measured = {
        "fallback": outcome.fallback,
        "smoothed": outcome.smoothing,
        "placed": outcome.static_grids,
    }
    details = {name: one for name, one in measured.items() if one is not None}
    if outcome.layers.form is Precision.INT8:
        perturbations = (0.0, *(BLOCK_PERTURBATIONS if layers else ()))
        plain, quantized, *others = with_quantized_rows(
            original.model, outcome.layers, outcome.chosen, perturbations, scratch
        )
        perturbed = tuple(replace(original, model=path) for path in others)
        rows = Quantization(replace(original, model=plain), PRECISION, perturbed, details=details)
        return replace(original, model=quantized), rows

    def reference_of(name: str, perturbation: float = 0.0) -> Reference:
        path = with_operands(original.model, layers, scratch, perturbation, name)
        return replace(original, model=path)

    perturbed = tuple(
        reference_of(f"nudged{number}", perturbation)
        for number, perturbation in enumerate(PERTURBATIONS)
    )
    return reference_of("rounded"), Quantization(
        original, PRECISION, perturbed if layers else (), details=details
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
