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
from compiler.ir.onnx.quantize.matmuls import Narrowing
from compiler.ir.onnx.quantize.row_matmuls import RowProducts
from compiler.targets import Target
from compiler.verify.reference.rounded import (
    with_operands,
    with_rounded,
    with_rounded_rows,
    with_stored_caches,
)
from compiler.verify.sides import Reference
from compiler.verify.uncertainty import BLOCK_NUDGES, NUDGES, Rounded
from compiler.verify.unrounded import CACHE, PRECISION, WEIGHTS
from relaxd.contract.options import CacheForm, Calibration, Precision, PrecisionOver, WeightForm
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    from compiler.ir.imported import Imported, Kept
    from compiler.ir.weights import Rounded as RoundedWeights
    from compiler.isolation.step import Record
    from compiler.passes.pack.round_operands import Keep
    from compiler.passes.pack.round_weights import Calibrate
    from compiler.passes.pipelines import Rounding
    from relaxd.contract.narrow import QuantizedLayers


@dataclass
class Found:
    """What became of the weights and of the layers, once the pass has run; fallback: what was
    measured to choose layers that stay as they are; chosen: what samples decided about products
    that the import rounds; smoothed, placed: what was measured to choose its scales, its grids.
    """

    weights: RoundedWeights | None = None
    layers: QuantizedLayers | None = None
    fallback: Record | None = None
    chosen: Narrowing = field(default_factory=Narrowing)
    smoothed: list[Record] | None = None
    placed: list[Record] | None = None

    def note_weights(self, rounded: RoundedWeights) -> None:
        """Keeps it."""
        self.weights = rounded

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
    if block_matmuls.set_level(model.proto, block_matmuls.ROUNDED):
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
    if not RowProducts(model.proto, static=static).layers.layers:
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


def rounding_of(
    request: CompileRequest,
    imported: Imported,
    target: Target,
    found: Found,
    calibrate: Calibrate | None = None,
    keep: Keep | None = None,
) -> Rounding | None:
    """The pass that rounds weights or operands, None where the request wants none; `found` hears
    what became of them. Raises ImportFailed for a target that would keep them as they are.

    calibrate: where weights are to be calibrated; None rounds them to nearest. keep: chooses layers
    that stay as they are, where passes round operands.
    """
    asked = _asked(request)
    if asked is None:
        return None
    require_processor(request, target)
    if imported.narrow is not None:
        # The import has rounded already, but for attentions.
        found.note_layers(imported.narrow)
        if not imported.products or request.options.precision_over is PrecisionOver.KEEP:
            return None
    if asked[0] == "precision":
        from compiler.passes.pack.round_operands import RoundOperands
        from compiler.targets.vector_unit import VectorUnit

        return RoundOperands.of(imported, VectorUnit.of(target), found.note_layers, keep)
    from compiler.passes.pack.round_weights import RoundWeights

    return RoundWeights(request.options.weights, imported.weights, found.note_weights, calibrate)


def require_processor(request: CompileRequest, target: Target) -> None:
    """Raises ImportFailed for a target whose kernels are no processor's, where the request rounds
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
    original: Reference, found: Found, kept: Kept | None, scratch: Path
) -> tuple[Reference, tuple[Rounded, ...]]:
    """The reference that rounds what the library does, and for each rounding what that is compared
    with; the original alone where nothing is rounded.

    kept: the caches that are lifted; what storing them in fewer bits changes is told from the
    reference that rounds all the rest.
    """
    plain, rounded = _references_of(original, found, scratch)
    others = () if rounded is None else (rounded,)
    if kept is None or kept.state.stored is None:
        return plain, others
    made = []
    for one in _stored(original, kept, scratch / "caches"):
        folder = one.model.with_suffix("")
        folder.mkdir()
        made.append(_references_of(one, found, folder))
    (reference, own), *moved = made
    # What nudges numbers before they are rounded moves the rows that are computed from them too.
    nudged = own.nudged if own and own.nudged else tuple(one for one, _ in moved)
    caches = Rounded(plain, CACHE, nudged)
    return reference, (*(replace(one, nudged=()) for one in others), caches)


def _stored(original: Reference, kept: Kept, folder: Path) -> tuple[Reference, ...]:
    """The original with rounded caches, as it is and nudged."""
    assert kept.state.stored is not None
    folder.mkdir()
    dtypes = {spec.name: spec.dtype for spec in kept.inputs}
    caches = [one.output for one in kept.state.caches if dtypes[one.input] == "float32"]
    form = kept.state.stored
    # Of rows in bytes it is the greatest number of each that the others are rounded beside.
    nudges = (0.0, *(BLOCK_NUDGES if form is CacheForm.INT8 else NUDGES))
    paths = with_stored_caches(original.model, caches, original.consts, form, nudges, folder)
    return tuple(replace(original, model=path) for path in paths)


def _references_of(
    original: Reference, found: Found, scratch: Path
) -> tuple[Reference, Rounded | None]:
    """As `references_of`, of weights and operands."""
    if found.weights is not None:
        path = with_rounded(original.model, found.weights.roundings, scratch)
        return replace(original, model=path), Rounded(original, WEIGHTS)
    if found.layers is None:
        return original, None
    layers = found.layers.layers
    measured = {
        "fallback": found.fallback,
        "smoothed": found.smoothed,
        "placed": found.placed,
    }
    stated = {name: one for name, one in measured.items() if one is not None}
    if found.layers.form is Precision.INT8:
        nudges = (0.0, *(BLOCK_NUDGES if layers else ()))
        plain, made, *others = with_rounded_rows(
            original.model, found.layers, found.chosen, nudges, scratch
        )
        nudged = tuple(replace(original, model=path) for path in others)
        rounded_rows = Rounded(replace(original, model=plain), PRECISION, nudged, stated=stated)
        return replace(original, model=made), rounded_rows

    def rounded(name: str, nudge: float = 0.0) -> Reference:
        path = with_operands(original.model, layers, scratch, nudge, name)
        return replace(original, model=path)

    nudged = tuple(rounded(f"nudged{place}", nudge) for place, nudge in enumerate(NUDGES))
    return rounded("rounded"), Rounded(original, PRECISION, nudged if layers else (), stated=stated)


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
