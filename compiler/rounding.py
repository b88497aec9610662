"""Where a library can round more than the model does: weights that it stores in fewer bits, and
operands of matmuls and convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.errors import ImportFailed
from compiler.targets import Target
from compiler.verify.reference.rounded import with_operands, with_rounded
from compiler.verify.report import Reference, Rounded
from compiler.verify.spread import NUDGES
from relaxd.contract.options import Precision, WeightForm
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    from compiler.ir.imported import Imported
    from compiler.ir.weights import Rounded as RoundedWeights
    from compiler.passes.pipelines import Rounding
    from relaxd.contract.narrow import NarrowLayers


@dataclass
class Found:
    """What became of the weights and of the layers, once the pass has run."""

    weights: RoundedWeights | None = None
    layers: NarrowLayers | None = None

    def note_weights(self, rounded: RoundedWeights) -> None:
        """Keeps it."""
        self.weights = rounded

    def note_layers(self, layers: NarrowLayers) -> None:
        """Keeps it."""
        self.layers = layers


def rounding_of(
    request: CompileRequest, imported: Imported, target: Target, found: Found
) -> Rounding | None:
    """The pass that rounds weights or operands, None where the request wants none; `found` hears
    what became of them. Raises ImportFailed for a target that would keep them as they are.
    """
    asked = _asked(request)
    if asked is None:
        return None
    name, what = asked
    if target.device is not None:
        raise ImportFailed(
            f"{what} are for processors, not for {target.name}",
            reason=name,
            field=f"options.{name}",
            hint=f"compile it with {name}=float32",
        )
    if name == "precision":
        from compiler.passes.pack.round_operands import RoundOperands
        from compiler.targets.vector_unit import VectorUnit

        return RoundOperands.of(imported, VectorUnit.of(target), found.note_layers)
    from compiler.passes.pack.round_weights import RoundWeights

    return RoundWeights(request.options.weights, imported.weights, found.note_weights)


def references_of(
    original: Reference, found: Found, scratch: Path
) -> tuple[Reference, Rounded | None]:
    """The reference that rounds what the library does, and what that is compared with; the original
    alone where nothing is rounded.
    """
    if found.weights is not None:
        path = with_rounded(original.model, found.weights.roundings, scratch)
        return replace(original, model=path), Rounded(original)
    if found.layers is None:
        return original, None
    layers = found.layers.layers

    def rounded(name: str, nudge: float = 0.0) -> Reference:
        path = with_operands(original.model, layers, scratch, nudge, name)
        return replace(original, model=path)

    nudged = tuple(rounded(f"nudged{place}", nudge) for place, nudge in enumerate(NUDGES))
    return rounded("rounded"), Rounded(original, nudged if layers else ())


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
