"""Reports of `relaxd ci`: a step summary, JUnit and SARIF."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

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
    gates against `baseline`, None where there is none yet.
    """

    model: str
    path: str
    target: str
    digest: str | None = None
    size: int = 0
    baseline: str | None = None
    error: str | None = None
    gates: tuple[GateOutcome, ...] = ()

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
    """A table with a row a check, then the reasons of those that failed."""
    lines = ["### relaxd", "", "| | Model | Target | Bytes | Found |", "|---|---|---|---:|---|"]
    for check in checks:
        outcome = "; ".join(check.problems) or _outcome(check)
        mark = "failed" if check.problems else "passed"
        cells = (mark, check.model, check.target, str(check.size or ""), outcome)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _outcome(check: Check) -> str:
    if check.baseline is None:
        return "no baseline yet"
    if check.baseline == check.digest:
        return "equal to the baseline"
    return "; ".join(f"{gate.gate}: {gate.said}" for gate in check.gates) or "compiled"


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
