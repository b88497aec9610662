"""The changes that quantization makes: a library's outputs beside those of the model as its file
has it.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from compiler.errors import VerifyError
from compiler.isolation.step import Record
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Signature, Trial
from compiler.verify.judge.judged import SIDES
from compiler.verify.weight_errors import OutputError
from relaxd.contract.options import CompileOptions

LIBRARY, REFERENCE = SIDES
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


class QuantizationErrors:
    """How far outputs of the sides of trials are from the unrounded model's; each side of a trial
    is compared once.
    """

    def __init__(self, signature: Signature, wording: Wording) -> None:
        self.signature, self.wording = signature, wording
        self._known: dict[tuple[str, int], list[OutputError]] = {}

    def of(self, side: str, trials: Sequence[Trial]) -> list[OutputError]:
        """The errors of a side's outputs over the trials; of rows, those of the library alone."""
        parts = zip(*(self._compare(side, trial) for trial in trials), strict=True)
        return [reduce(operator.add, errors) for errors in parts]

    def _compare(self, side: str, trial: Trial) -> list[OutputError]:
        key = (side, trial.index)
        if key not in self._known:
            got, want = (array_file.read(trial.outputs(one)) for one in (side, self.wording.side))
            self._known[key] = [OutputError(output.name) for output in self.signature.outputs]
            for error in self._known[key]:
                error.add(got[error.name], want[error.name], rows=side == LIBRARY)
        return self._known[key]


def changes(trials: Sequence[Trial], errors: QuantizationErrors, options: CompileOptions) -> Record:
    """A `relaxd.contract.bundle.report.WeightsReport`, of trials that the library, the reference
    and the unrounded model answered. expected: the error of the reference, which rounds the same.
    """
    library = errors.of(LIBRARY, trials)
    return {
        "form": errors.wording.form(options).value,
        "points": len(trials),
        "limit": errors.wording.limit(options),
        "error": _worst(library),
        "expected": _worst(errors.of(REFERENCE, trials)),
        "outputs": [output.to_json() for output in library],
    }


def _worst(errors: Sequence[OutputError]) -> float | None:
    """The greatest error, None if it is not finite."""
    worst = max((output.error for output in errors), default=0.0)
    return worst if math.isfinite(worst) else None


def check_likeness(
    trials: Sequence[Trial],
    errors: QuantizationErrors,
    sides: Sequence[str],
    report: Record,
    options: CompileOptions,
) -> None:
    """Raises VerifyError for an output of the library that is further from the unrounded model's
    than equal roundings of the same numbers, which the sides are, explain.

    The difference from any one of them may be as large as what rounding changes, and hide a fault
    of that size; the error of all elements together does not.
    """
    wording = errors.wording
    alike = [errors.of(side, trials) for side in sides]
    floats = {one.name for one in errors.signature.outputs if "float" in one.dtype}
    for output, own in zip(errors.of(LIBRARY, trials), zip(*alike, strict=True), strict=True):
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
