"""Conditions under which a comparison of two builds fails: `latency>5%`, `cosine<0.999`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relaxd.contract.bundle.diff import BuildDiff, GateResult
from relaxd.contract.dims.dims import point_text
from relaxd.errors import DeclarationError

_FORM = re.compile(r"\s*(?P<what>[a-z_]+)\s*(?P<sign>[<>])\s*(?P<number>[0-9.e+-]+)\s*(?P<part>%?)")
_HINT = "as in 'latency>5%', 'size>2%', 'cosine<0.999', 'argmax<0.99', 'max>1e-3' or 'mean>1e-4'"


@dataclass(frozen=True)
class Gate:
    """`limit` is a number, or for percentages a part of the base."""

    text: str
    what: str
    limit: float

    @classmethod
    def of(cls, text: str) -> "Gate":
        """Read a condition; raises DeclarationError."""
        match = _FORM.fullmatch(text)
        try:
            if match and _SIGNS.get(match["what"]) == (match["sign"], bool(match["part"])):
                limit = float(match["number"]) / (100 if match["part"] else 1)
                return cls(text, match["what"], limit)
        except ValueError:
            pass
        raise DeclarationError(f"{text!r} is not a valid condition", field="fail-if", hint=_HINT)

    @property
    def timed(self) -> bool:
        """True if judging it needs measured latencies."""
        return self.what == "latency"

    def judge(self, diff: BuildDiff) -> GateResult:
        """Compare the difference with the limit; a latency fails only with confidence."""
        return _JUDGES[self.what](self, diff)


def _latency(gate: Gate, diff: BuildDiff) -> GateResult:
    worst = max(diff.latency, key=lambda one: one.low, default=None)
    if worst is None:
        return GateResult(gate.text, False, _not_compared("latency", diff))
    text = f"{worst.ratio - 1:+.1%} ({worst.low - 1:+.1%} to {worst.high - 1:+.1%})"
    return GateResult(gate.text, worst.low - 1 > gate.limit, f"{text} at {point_text(worst.dims)}")


def _size(gate: Gate, diff: BuildDiff) -> GateResult:
    (total,) = (change for change in diff.sizes if change.name == "total")
    grown = total.head / total.base - 1 if total.base else 0.0
    # A few bytes less are +0.00%, not -0.00%.
    shown = round(grown, 4) + 0.0
    return GateResult(gate.text, grown > gate.limit, f"{shown:+.2%}")


def _output(field: str, below: bool) -> Callable[[Gate, BuildDiff], GateResult]:
    def judge(gate: Gate, diff: BuildDiff) -> GateResult:
        values = [
            (value, one) for one in diff.outputs if (value := getattr(one, field)) is not None
        ]
        if not values:
            return GateResult(gate.text, False, _not_compared("outputs", diff))
        value, one = (min if below else max)(values, key=lambda pair: pair[0])
        # NaN is a failure.
        failed = not (value >= gate.limit if below else value <= gate.limit)
        return GateResult(
            gate.text, failed, f"{value:.6g} of {one.name!r} at {point_text(one.dims)}"
        )

    return judge


def _not_compared(what: str, diff: BuildDiff) -> str:
    return f"no {what} compared" + (f": {diff.not_run}" if diff.not_run else "")


_SIGNS = {
    "latency": (">", True),
    "size": (">", True),
    "cosine": ("<", False),
    "argmax": ("<", False),
    "max": (">", False),
    "mean": (">", False),
}
_JUDGES: dict[str, Callable[[Gate, BuildDiff], GateResult]] = {
    "latency": _latency,
    "size": _size,
    "cosine": _output("cosine", below=True),
    "argmax": _output("argmax_agreement", below=True),
    "max": _output("max_abs", below=False),
    "mean": _output("mean_abs", below=False),
}


def judge_all(gates: Sequence[Gate], diff: BuildDiff) -> tuple[GateResult, ...]:
    """Judge each condition."""
    return tuple(gate.judge(diff) for gate in gates)
