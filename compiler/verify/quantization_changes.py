"""The changes that quantization makes: a library's outputs beside those of the model as its file
has it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler.errors import VerifyError
from compiler.isolation.step import Record
from compiler.verify.inputs import npz
from compiler.verify.inputs.inputs import Signature, Trial
from compiler.verify.weight_errors import OutputError, weight_errors
from relaxd.contract.options import CompileOptions

_ALIKE = 1.25
"""By what factor the errors of equal roundings may differ: those of MiniLM, ResNet-50, ViT-S and
magika in bfloat16 and int8 are within 4 % of each other.
"""
_NOISE = 4.0
"""Of n elements the root of a mean square has a deviation of 1 / sqrt(n) of itself at most: so many
of them are allowed.
"""
_NEGLIGIBLE = 1e-4
"""An error that sums of float32 in another order may have."""


@dataclass(frozen=True)
class Wording:
    """How reports and messages speak of what was rounded: the name of the option and of the
    report's part, what has an error, and what makes it smaller.
    """

    part: str
    subject: str
    remedy: str

    @property
    def side(self) -> str:
        """The side of a trial that has the model without this rounding."""
        return f"unrounded.{self.part}"

    def form(self, options: CompileOptions) -> Any:
        """The value of the request's option."""
        return getattr(options, self.part)

    def limit(self, options: CompileOptions) -> float | None:
        """The error that the request allows."""
        allowed: float | None = getattr(options, f"{self.part}_error")
        return allowed


WEIGHTS = Wording("weights", "weights of", "store the weights in more bits")
PRECISION = Wording("precision", "operands of", "compute in float32")
CACHE = Wording("cache", "rows of caches of", "store caches as float32")


def changes(
    trials: Sequence[Trial], signature: Signature, options: CompileOptions, wording: Wording
) -> Record:
    """A `relaxd.contract.bundle.report.WeightsReport`, of trials that the library, the reference
    and the unrounded model answered. expected: the error of the reference, which rounds the same.
    """
    errors, worst = _errors(trials, signature, "library", wording)
    _, expected = _errors(trials, signature, "reference", wording)
    return {
        "form": wording.form(options).value,
        "points": len(trials),
        "limit": wording.limit(options),
        "error": worst,
        "expected": expected,
        "outputs": [output.to_json() for output in errors],
    }


def check_likeness(
    trials: Sequence[Trial],
    signature: Signature,
    sides: Sequence[str],
    report: Record,
    options: CompileOptions,
    wording: Wording,
) -> None:
    """Raises VerifyError for an output of the library that is further from the unrounded model's
    than equal roundings of the same numbers, which the sides are, explain.

    The difference from any one of them may be as large as what rounding changes, and hide a fault
    of that size; the error of all elements together does not.
    """
    errors = [_errors(trials, signature, side, wording)[0] for side in sides]
    library, _ = _errors(trials, signature, "library", wording)
    floats = {one.name for one in signature.outputs if "float" in one.dtype}
    for output, own in zip(library, zip(*errors, strict=True), strict=True):
        usual = max(one.error for one in own)
        factor = max(_ALIKE, 1 + _NOISE / math.sqrt(max(output.count, 1)))
        if output.name not in floats or output.error <= max(factor * usual, _NEGLIGIBLE):
            continue
        raise VerifyError(
            f"output {output.name!r} is {output.error:.3g} of its values from the model that "
            f"rounds nothing; with {wording.subject} {wording.form(options)} it should be "
            f"{usual:.3g}",
            reason="beyond_rounding",
            hint=f"{wording.remedy}, and report the model: the library is at fault",
            numerics=report,
        )


def _errors(
    trials: Sequence[Trial], signature: Signature, side: str, wording: Wording
) -> tuple[list[OutputError], float | None]:
    """The errors of that side's outputs, and the greatest of them, None if it is not finite."""
    errors = weight_errors(
        (output.name, got[output.name], want[output.name])
        for trial in trials
        for got, want in [[npz.read(trial.outputs(one)) for one in (side, wording.side)]]
        for output in signature.outputs
    )
    worst = max((output.error for output in errors), default=0.0)
    return errors, worst if math.isfinite(worst) else None


def check_error(report: Record, options: CompileOptions, wording: Wording) -> None:
    """Raises VerifyError for a greater error than the options allow."""
    limit, error = wording.limit(options), report[wording.part]["error"]
    if limit is None or (error is not None and error <= limit):
        return
    outputs = report[wording.part]["outputs"]
    worst = max(outputs, key=lambda one: math.inf if one["error"] is None else one["error"])
    share = "no finite share" if error is None else f"{error:.3g}"
    raise VerifyError(
        f"with {wording.subject} {wording.form(options)} the error of output {worst['name']!r} is "
        f"{share} of its values, more than the {limit:g} allowed",
        reason=f"{wording.part}_error",
        field=f"options.{wording.part}_error",
        hint=f"{wording.remedy}, or raise options.{wording.part}_error",
        numerics=report,
    )
