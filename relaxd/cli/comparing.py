"""Runs `relaxd diff` and `relaxd accuracy` in processes of their own: a library must not take down
the report, and gets no tokens.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxd.cli.checks import GateOutcome
from relaxd.cli.console import Exit
from relaxd.cli.evaluating import Evaluation
from relaxd.contract.bundle.diff import LatencyChange
from relaxd.errors import LoadContractError, RelaxdError
from relaxd.reports.gates import Gate


class DiffFailed(RelaxdError):
    """Two bundles could not be compared."""

    code = "ci.diff_failed"


class AccuracyFailed(RelaxdError):
    """A bundle could not be run on labelled samples."""

    code = "ci.accuracy_failed"


@dataclass(frozen=True)
class Comparison:
    """The findings of `relaxd diff`: its gates, and latencies if any gate needs them."""

    gates: tuple[GateOutcome, ...]
    latency: tuple[LatencyChange, ...] = ()


def differ(base: Path, head: Path, fail_if: tuple[str, ...]) -> Comparison:
    """Run `relaxd diff`; raises DiffFailed."""
    arguments = ["diff", str(base), str(head), "--format", "json"]
    arguments += [part for text in fail_if for part in ("--fail-if", text)]
    if not any(Gate.of(text).timed for text in fail_if):
        arguments += ["--seconds", "0"]
    done = _run(arguments)
    try:
        if done.returncode not in (Exit.DONE, Exit.REGRESSED):
            raise ValueError(f"status {done.returncode}")
        document = json.loads(done.stdout)
        return Comparison(
            tuple(GateOutcome(**one) for one in document["gates"]),
            tuple(LatencyChange(**one) for one in document["latency"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        hint = " ".join(["relaxd", *arguments])
        raise DiffFailed(f"relaxd diff failed: {last}", hint=hint) from error


def judge_accuracy(head: Path, base: Path | None, evaluation: Evaluation) -> GateOutcome:
    """The metric of the bundle, and of the baseline if a loss is limited; one that this machine
    cannot run does not fail. Raises AccuracyFailed.
    """
    name = evaluation.metric.rpartition("/")[2]
    try:
        value, count = _accuracy(head, evaluation)
        baseline = None
        if base is not None and evaluation.loss is not None:
            baseline = _accuracy(base, evaluation)[0]
    except _NotHere as error:
        return GateOutcome(name, False, f"not run: {error}")
    beside = "" if baseline is None else f", the baseline {baseline:.6g}"
    failure = evaluation.failure(value, baseline)
    said = failure or f"{value:.6g}{beside}"
    return GateOutcome(name, failure is not None, f"{said} ({count} samples)")


class _NotHere(Exception):
    """The bundle is for another machine."""


def _accuracy(bundle: Path, evaluation: Evaluation) -> tuple[float, int]:
    arguments = ["accuracy", str(bundle), "--json", *evaluation.arguments()]
    done = _run(arguments)
    document = _document(done.stdout)
    if done.returncode == Exit.DONE and "value" in document:
        value = document["value"]
        return math.nan if value is None else float(value), int(document["samples"])
    failure = document.get("error", {})
    if failure.get("code") == LoadContractError.code:
        raise _NotHere(failure["message"])
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    raise AccuracyFailed(
        f"relaxd accuracy failed: {failure.get('message', last)}",
        hint=failure.get("hint") or " ".join(["relaxd", *arguments]),
    )


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(
        filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
    )
    plain = {name: text for name, text in os.environ.items() if not name.endswith("_TOKEN")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "relaxd", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**plain, "PYTHONPATH": path},
    )
