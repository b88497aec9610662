"""Verifies the steps on strings around a library."""

from pathlib import Path
from typing import Any

from compiler.errors import VerifyError
from compiler.isolation.step import Record, TaskLimits, run_task
from compiler.verify.sides import Budget
from relaxd.contract.bundle.numerics import Verdict

_MODULE = "compiler.verify.reference.strings"


def verify_strings(
    model: Path, request: dict[str, Any], seed: int, folder: Path, budget: Budget
) -> Record:
    """Compare the steps with ONNX Runtime on sampled strings, exactly but for floats, and report
    it for numerics.json; raises VerifyError where they differ.

    model: the file of the job; request: as JSON.
    """
    outcome = run_task(
        _MODULE,
        {"model": str(model), "request": request, "seed": seed},
        folder / "strings.jsonl",
        TaskLimits.of_work(budget.seconds / 2, budget.memory_bytes),
    )
    result: Record = {}
    for record in outcome.records:
        result |= record
    if "mismatch" in result:
        raise VerifyError(
            f"strings are not computed as the model has them: {result['mismatch']}",
            reason="strings",
            hint="report the model; options.verify off publishes the library unverified",
            strings=result["strings"],
        )
    if not result.get("compared"):
        return {"verdict": Verdict.NOT_RUN.value, "reason": _reason(result, outcome.reason)}
    return {
        "verdict": Verdict.PASSED.value,
        "reference": result["engine"],
        "compared": result["compared"],
        "refused": result["refused"],
    }


def _reason(result: Record, ended: str | None) -> str:
    if "unable" in result:
        return str(result["unable"])
    return ended or "the reference refuses all strings that were tried"
