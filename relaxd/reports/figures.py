"""The three numbers of a build that a reader of a pull request looks at: bytes, ms and error."""

from dataclasses import dataclass

from relaxd.contract.bundle.report import NumericsReport, Report


@dataclass(frozen=True)
class Figures:
    """`size` in bytes; `ms` of a call at the favoured point; `error`: the largest difference of an
    output from the reference, divided by the reference's largest value, or if greater the error of
    a quantization. None: not known.
    """

    size: int
    ms: float | None = None
    error: float | None = None


def figures_of(report: Report) -> Figures:
    """The numbers that the build's own report has."""
    point = report.profile.favoured if report.profile else None
    return Figures(report.sizes.total, point.median_ms if point else None, _error(report.numerics))


def _error(numerics: NumericsReport) -> float | None:
    outputs = [
        output.max_abs / output.range
        for output in numerics.outputs
        if output.max_abs is not None and output.range
    ]
    quantized = (numerics.precision, numerics.weights, numerics.cache)
    errors = [part.error for part in quantized if part is not None and part.error is not None]
    return max([*outputs, *errors], default=None)
