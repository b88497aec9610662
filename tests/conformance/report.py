"""The report of a run: passes by category with the failing names, as text and as JSON."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance.cases import NODE
from tests.conformance.modes import Mode
from tests.conformance.outcomes import Outcome, Result

ONNXRUNTIME_PASSES = 1375
"""Of the node cases, in either mode, as measured with 1.31.1 before this harness was there."""


def document(engine: str, mode: Mode, results: Sequence[Result]) -> dict[str, Any]:
    """The report as JSON types."""
    return {
        "engine": engine,
        "mode": mode.value,
        "totals": {suite: _counts(outcome) for suite, outcome in _by(results, "suite").items()},
        "categories": {
            name: _counts(outcome) for name, outcome in sorted(_by(results, "category").items())
        },
        "results": [result.to_json() for result in sorted(results, key=lambda result: result.name)],
    }


def lines(mode: Mode, results: Sequence[Result]) -> Iterable[str]:
    """The report as text: a Markdown table, then each case that failed, then the totals."""
    yield "| category | ok | cases | not ok |"
    yield "|---|---|---|---|"
    for name, actual in sorted(_by(results, "category").items()):
        counts = _counts(actual)
        others = ", ".join(
            f"{count} {outcome}"
            for outcome, count in counts.items()
            if outcome not in ("ok", "cases") and count
        )
        yield f"| {name} | {counts['ok']} | {counts['cases']} | {others} |"
    yield ""
    for result in sorted(results, key=lambda result: (result.outcome.value, result.name)):
        if result.outcome is not Outcome.OK:
            yield f"{result.outcome.value}: {result.name}: {result.why}"
    yield ""
    for suite, actual in _by(results, "suite").items():
        counts = _counts(actual)
        beside = f" (ONNX Runtime passes {ONNXRUNTIME_PASSES})" if suite == NODE else ""
        yield (
            f"{suite}, {mode.value}: "
            + ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            + beside
        )


def _by(results: Sequence[Result], attribute: str) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[getattr(result, attribute)].append(result)
    return groups


def _counts(results: Sequence[Result]) -> dict[str, int]:
    counted = Counter(result.outcome for result in results)
    return {"cases": len(results), **{outcome.value: counted[outcome] for outcome in Outcome}}
