"""The references of a library that quantizes: the model with the same quantized weights, operands
or caches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.ir.files.model_file import LoadedScript, open_model
from compiler.ir.weights import WeightQuantization
from compiler.quantize.plan import QuantizationPlan
from compiler.verify.quantization_changes import CACHE, PRECISION, WEIGHTS
from compiler.verify.reference.onnx import save_model
from compiler.verify.sides import Reference
from compiler.verify.uncertainty import BLOCK_PERTURBATIONS, PERTURBATIONS, Quantization
from relaxd.contract.options import CacheForm, Precision

if TYPE_CHECKING:
    from compiler.ir.imported import CallerState
    from compiler.quantize.onnx.matmuls import MatmulQuantization
    from relaxd.contract.narrow import QuantizedLayers

_OF_ITSELF = 0.25
"""The share of a perturbation by which numbers are moved that have no row: one may be smaller than
the greatest of a row.
"""


def references_of(
    original: Reference, plan: QuantizationPlan, kv_caches: CallerState | None, scratch: Path
) -> tuple[Reference, tuple[Quantization, ...]]:
    """The reference that rounds what the library does, and for each rounding what that is compared
    with; the original alone where nothing is rounded.

    kv_caches: those that are in place; the reference that rounds all the rest tells what storing
    them in fewer bits changes.
    """
    plain, quantization = _references_of(original, plan, scratch)
    others = () if quantization is None else (quantization,)
    if kv_caches is None or kv_caches.state.stored is None:
        return plain, others
    references = []
    for one in _stored(original, kv_caches, scratch / "caches"):
        folder = one.model.with_suffix("")
        folder.mkdir()
        references.append(_references_of(one, plan, folder))
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
    original: Reference, plan: QuantizationPlan, scratch: Path
) -> tuple[Reference, Quantization | None]:
    """`references_of`, of weights and operands."""
    if plan.weights is not None:
        path = with_quantized_weights(original.model, plan.weights.roundings, scratch)
        return replace(original, model=path), Quantization(original, WEIGHTS)
    if plan.layers is None:
        return original, None
    layers = plan.layers.layers
    if plan.layers.form is Precision.INT8:
        perturbations = (0.0, *(BLOCK_PERTURBATIONS if layers else ()))
        plain, quantized, *others = with_quantized_rows(
            original.model, plan.layers, plan.matmuls, perturbations, scratch
        )
        perturbed = tuple(replace(original, model=path) for path in others)
        rows = Quantization(
            replace(original, model=plain), PRECISION, perturbed, details=dict(plan.measured)
        )
        return replace(original, model=quantized), rows

    def reference_of(name: str, perturbation: float = 0.0) -> Reference:
        path = with_operands(original.model, layers, scratch, perturbation, name)
        return replace(original, model=path)

    perturbed = tuple(
        reference_of(f"nudged{number}", perturbation)
        for number, perturbation in enumerate(PERTURBATIONS)
    )
    return reference_of("rounded"), Quantization(
        original, PRECISION, perturbed if layers else (), details=dict(plan.measured)
    )


def with_quantized_weights(
    model: Path, roundings: Mapping[bytes, WeightQuantization], scratch: Path
) -> Path:
    """A copy of the ONNX model in the file, in the folder; the file itself where there is nothing
    to round.
    """
    # It is imported where a library has been compiled, with TVM: a model that cannot be read fails
    # before that.
    from compiler.ir.onnx.model.weights import quantize_weights

    if not roundings:
        return model
    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    quantize_weights(loaded.proto, roundings)
    return save_model(loaded.proto, scratch, "rounded")


def with_operands(
    model: Path,
    labels: Collection[str],
    scratch: Path,
    perturbation: float = 0.0,
    name: str = "rounded",
) -> Path:
    """`with_quantized_weights`, for the operands of those nodes; perturbation: `nudge` of
    `compiler.quantize.onnx.matmuls`.
    """
    from compiler.quantize.onnx.matmuls import cast_operands

    if not labels:
        return model
    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    return save_model(cast_operands(loaded.proto, labels, perturbation), scratch, name)


def with_stored_caches(
    model: Path,
    outputs: Collection[str],
    consts: Mapping[str, Any],
    form: CacheForm,
    perturbations: Sequence[float],
    scratch: Path,
) -> list[Path]:
    """Copies of the ONNX model in the file, in the folder, one for each perturbation: the caches
    that come out as `outputs` are quantized (`stored_caches`).
    """
    import onnx

    from compiler.quantize.onnx.kv_cache import quantize_kv_caches

    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    # All copies read the weights from one file.
    onnx.save_model(
        loaded.proto, scratch / "passed.onnx", save_as_external_data=True, location="passed.data"
    )
    paths = []
    for number, perturbation in enumerate(perturbations):
        copy = quantize_kv_caches(loaded.proto, outputs, consts, form, perturbation)
        paths.append(scratch / f"stored{number}.onnx")
        paths[-1].write_bytes(copy.SerializeToString())
    return paths


def with_quantized_rows(
    model: Path,
    quantized: QuantizedLayers,
    chosen: MatmulQuantization,
    perturbations: Sequence[float],
    scratch: Path,
) -> list[Path]:
    """Copies of the ONNX model in the file, in the folder: one whose matmuls by weights in blocks
    round nothing, and for each perturbation one that rounds what those nodes multiply
    (`block_products`).
    Of a model without such blocks, the file itself and copies that round products by floats
    (`row_products`) as was chosen, and the operands of others to bfloat16.
    """
    import onnx

    from compiler.quantize.onnx.block_matmuls import has_blocks, quantize_rows, set_level
    from compiler.quantize.onnx.matmuls import cast_operands
    from compiler.quantize.onnx.row_matmuls import RowMatmuls

    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    if not has_blocks(loaded.proto):
        matmuls = RowMatmuls(loaded.proto, chosen.scales, chosen.grids)
        paths = [model]
        for number, perturbation in enumerate(perturbations):
            copy = matmuls.quantize(perturbation, quantized.layers)
            if quantized.bfloat16:
                copy = cast_operands(copy, quantized.bfloat16, perturbation * _OF_ITSELF)
            paths.append(save_model(copy, scratch, f"rows{number}"))
        return paths
    set_level(loaded.proto, 0)
    # All copies read the weights from one file.
    paths = [scratch / "plain.onnx"]
    onnx.save_model(loaded.proto, paths[0], save_as_external_data=True, location="plain.data")
    bare = loaded.proto.SerializeToString()
    for number, perturbation in enumerate(perturbations):
        copy = onnx.ModelProto.FromString(bare)
        quantize_rows(copy, perturbation, quantized.layers)
        paths.append(scratch / f"rows{number}.onnx")
        paths[-1].write_bytes(copy.SerializeToString())
    return paths
