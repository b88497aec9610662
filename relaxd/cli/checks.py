"""Reports of `relaxd ci`: a step summary, which is the comment too, JUnit and SARIF."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from relaxd.reports.figures import Figures

_LEGEND = (
    "Each cell: the baseline, then this change. ms: a call at the favoured sizes, as each build "
    "was profiled, or with \\* both in turns on this runner. Error: the largest difference from "
    "the reference, by the reference's largest value, or that of a quantization."
)
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True)
class GateOutcome:
    """A condition of `relaxd diff`, whether it failed the check, and the measured value."""

    gate: str
    failed: bool
    said: str


@dataclass(frozen=True)
class Check:
    """A model and a target: the digest and size of the bundle, or the `error` of its build; the
    gates against `baseline`, None where there is none yet. base, head: the figures of the two
    bundles; in_turns: whether their milliseconds were measured here, their calls taking turns.
    job: that of the service which built it.
    """

    model: str
    path: str
    target: str
    digest: str | None = None
    size: int = 0
    baseline: str | None = None
    error: str | None = None
    gates: tuple[GateOutcome, ...] = ()
    base: Figures | None = None
    head: Figures | None = None
    in_turns: bool = False
    job: str | None = None

    @property
    def regressed(self) -> bool:
        """True if any gate failed."""
        return any(gate.failed for gate in self.gates)

    @property
    def problems(self) -> list[str]:
        """A sentence for each reason why the check failed."""
        failed = [f"{gate.gate}: {gate.said}" for gate in self.gates if gate.failed]
        return [self.error] if self.error else failed

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "passed": not self.problems}


def markdown(checks: Sequence[Check]) -> str:
    """A table with a row a check: the baseline's figures, those of the bundle, what was found."""
    lines = ["### relaxd", "", "| | Model | Target | ms | MB | Error | Found |"]
    lines.append("|---|---|---|---:|---:|---:|---|")
    for check in checks:
        outcome = "; ".join(check.problems) or _outcome(check)
        mark = "failed" if check.problems else "passed"
        cells = (mark, check.model, check.target, *_figures(check), outcome)
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join((*lines, "", _LEGEND)) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _figures(check: Check) -> tuple[str, str, str]:
    head, base = check.head, check.base
    if head is None:
        return "", "", ""
    ms = _pair(base.ms if base else None, head.ms, 1.0)
    return (
        f"{ms} \\*" if check.in_turns else ms,
        _pair(base.size if base else None, head.size, 1e6),
        _pair(base.error if base else None, head.error, 1.0, ".1e"),
    )


def _pair(base: float | None, head: float | None, unit: float, form: str = ".3g") -> str:
    """`2.1 → 2.3 (+9.5 %)`, with less where a number is missing or they are equal."""
    texts = ["" if value is None else f"{value / unit:{form}}" for value in (base, head)]
    if base is None or head is None or base == head:
        return texts[1] or (f"{texts[0]} → ?" if texts[0] else "")
    change = f" ({100 * (head / base - 1):+.1f} %)" if base else ""
    return f"{texts[0]} → {texts[1]}{change}"


def _outcome(check: Check) -> str:
    parts = [f"{gate.gate}: {gate.said}" for gate in check.gates]
    if check.baseline is None:
        parts.insert(0, "no baseline yet")
    elif check.baseline == check.digest:
        parts.insert(0, "equal to the baseline")
    return "; ".join(parts) or "compiled"


def junit(checks: Sequence[Check]) -> str:
    """A test case a check."""
    failures = sum(bool(check.problems) for check in checks)
    suite = ElementTree.Element(
        "testsuite", name="relaxd ci", tests=str(len(checks)), failures=str(failures)
    )
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", name=check.target, classname=f"relaxd.{check.model}"
        )
        for problem in check.problems:
            ElementTree.SubElement(case, "failure", message=problem)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def sarif(checks: Sequence[Check]) -> str:
    """A result a problem, at the model's file."""
    results = [
        {
            "ruleId": "build" if check.error else "regression",
            "level": "error",
            "message": {"text": f"{check.model} for {check.target}: {problem}"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": check.path}}}],
        }
        for check in checks
        for problem in check.problems
    ]
    rules = [{"id": "build"}, {"id": "regression"}]
    run = {"tool": {"driver": {"name": "relaxd", "rules": rules}}, "results": results}
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"
