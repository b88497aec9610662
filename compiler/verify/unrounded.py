"""What rounded weights change: a library's outputs beside those of the model's own weights."""

import math
from collections.abc import Sequence

from compiler.errors import VerifyError
from compiler.isolation.step import Record
from compiler.verify import npz
from compiler.verify.inputs import Signature, Trial
from compiler.verify.weight_errors import weight_errors
from relaxd.contract.options import CompileOptions

UNROUNDED = "unrounded"
"""The side of a trial that has the model's own weights."""


def weights_report(
    trials: Sequence[Trial], signature: Signature, options: CompileOptions
) -> Record:
    """As `relaxd.contract.report.WeightsReport`, of trials that both sides answered."""
    found = weight_errors(
        (output.name, got[output.name], want[output.name])
        for trial in trials
        for got, want in [[npz.read(trial.outputs(side)) for side in ("library", UNROUNDED)]]
        for output in signature.outputs
    )
    worst = max((output.error for output in found), default=0.0)
    return {
        "form": options.weights.value,
        "points": len(trials),
        "limit": options.weights_error,
        "error": worst if math.isfinite(worst) else None,
        "outputs": [output.to_json() for output in found],
    }


def check_error(report: Record, options: CompileOptions) -> None:
    """Raises VerifyError for a greater error of the weights than the options allow."""
    limit, error = options.weights_error, report["weights"]["error"]
    if limit is None or (error is not None and error <= limit):
        return
    outputs = report["weights"]["outputs"]
    worst = max(outputs, key=lambda one: math.inf if one["error"] is None else one["error"])
    share = "no finite share" if error is None else f"{error:.3g}"
    raise VerifyError(
        f"with weights of {options.weights} the error of output {worst['name']!r} is {share} of "
        f"its values, more than the {limit:g} allowed",
        reason="weights_error",
        field="options.weights_error",
        hint="store the weights in more bits, or raise options.weights_error",
        numerics=report,
    )
