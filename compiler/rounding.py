"""Where weights can be stored in fewer bits than the model has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compiler.errors import ImportFailed
from compiler.targets import Target
from relaxd.contract.options import WeightForm
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    from compiler.ir.imported import Imported
    from compiler.ir.weights import Rounded
    from compiler.passes.pack.round_weights import RoundWeights


def rounding_of(
    request: CompileRequest,
    imported: Imported,
    target: Target,
    note: Callable[[Rounded], None] = lambda rounded: None,
) -> RoundWeights | None:
    """The pass that rounds weights, None where the request wants none; `note` hears what became of
    them. Raises ImportFailed for a target that would keep them as they are.
    """
    form = request.options.weights
    if form is WeightForm.FLOAT32:
        return None
    if target.device is not None:
        raise _refused(f"weights of {form} are for processors, not for {target.name}")
    from compiler.passes.pack.round_weights import RoundWeights

    return RoundWeights(form, imported.weights, note)


def require_plain(request: CompileRequest) -> None:
    """Raises ImportFailed for a model that is no ONNX and whose weights are to be rounded."""
    if request.options.weights is not WeightForm.FLOAT32:
        raise ImportFailed(
            f"weights of ONNX models alone can be stored as {request.options.weights}",
            reason="weights",
            field="options.weights",
            hint="export the module to ONNX",
        )


def _refused(why: str) -> ImportFailed:
    return ImportFailed(
        why, reason="weights", field="options.weights", hint="compile it with weights=float32"
    )
