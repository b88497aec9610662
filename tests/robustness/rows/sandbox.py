"""Rows about models, and libraries made of them, that attack the machine that builds them."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from compiler.isolation.level import CONFINING
from tests.compiler.isolation.attacks import ATTACKS, NARROWED
from tests.compiler.isolation.attacks.system import SURFACE, TORCHSCRIPT
from tests.compiler.isolation.attempts import KERNELS, attempt, reset, stage
from tests.robustness.row import Outcome, Row, Run

BY_ONE_LAYER = {*(f"reach_{name}" for name, *_ in SURFACE), "run_a_program_of_its_own"}
"""Attacks that one layer alone denies, and that lead to nobody's files."""
MODELS = tuple(f"torchscript_{name}" for name in TORCHSCRIPT)
CODE = tuple(name for name in ATTACKS if name not in BY_ONE_LAYER and name not in MODELS)


def torchscript(run: Run) -> Outcome:
    """TorchScript files that read and write, and what their code would do were torch subverted."""
    draw = random.Random(run.seed)
    models = draw.sample(MODELS, min(run.count, len(MODELS)))
    code = draw.sample(CODE, min(run.count - len(models), len(CODE)))
    return _denied(run, (*models, *code), {})


def libraries(run: Run) -> Outcome:
    """Code in a process that is confined as those of verification and profiling are."""
    every = (*NARROWED, *CODE)
    chosen = random.Random(run.seed).sample(every, min(run.count, len(every)))
    return _denied(run, chosen, {"narrowed": True})


def _denied(run: Run, chosen: Sequence[str], options: dict[str, Any]) -> Outcome:
    """Try each on kernels that lack no layer, and one each."""
    wrong, tried = [], 0
    for folder in ("scene", "build"):
        (run.folder / folder).mkdir()
    with stage(run.folder / "scene") as scene:
        for lacking in KERNELS:
            spec = {**reset(scene, run.folder / "build"), "only": chosen, **options}
            result = attempt(lacking, spec)
            if not lacking and not {one.value for one in CONFINING} <= set(result["layers"]):
                pytest.skip(f"this kernel has {', '.join(result['layers'])} alone")
            tried += len(result["outcomes"])
            wrong += [
                f"{name} on a kernel without {lacking or 'nothing'}: {message}"
                for name, message in result["outcomes"].items()
                if message == "succeeded" and not (lacking == "landlock" and name in NARROWED)
            ]
    counts = {"kinds": len(chosen), "attempts": tried, "succeeded": len(wrong)}
    return Outcome(not wrong and tried == len(chosen) * len(KERNELS), counts, "\n".join(wrong))


ROWS = (
    Row(
        "torchscript-attacks",
        "TorchScript files that read, write, connect and spawn are denied, still so where any one "
        "layer of the sandbox is missing",
        30,
        torchscript,
        "TorchScript has no operator that connects or spawns: these attempts are Python code in "
        "the same confinement, as if torch itself had been subverted.",
    ),
    Row(
        "library-attacks",
        "code of a built library reaches no network and no other process, and writes nowhere but "
        "to its scratch",
        40,
        libraries,
        "Python code in the confinement of verification and profiling stands in for a library's: "
        "the kernel sees the same system calls. Landlock alone keeps a library from the bundle "
        "that it belongs to.",
    ),
)
