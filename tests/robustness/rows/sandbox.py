"""Rows about models, and libraries made of them, that attack the machine that builds them."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from compiler.isolation.level import CONFINING
from tests.compiler.isolation.attacks import ATTACKS, NARROWED
from tests.compiler.isolation.attacks.system import SURFACE, TORCHSCRIPT
from tests.compiler.isolation.attempts import (
    KERNELS,
    WITHOUT_CONTROL,
    attempt,
    failed_controls,
    reset,
    stage,
)
from tests.robustness.row import Outcome, Row, Run

BY_ONE_LAYER = {*(f"reach_{name}" for name, *_ in SURFACE), "run_a_program_of_its_own"}
"""Attacks that one layer alone denies, and that lead to nobody's files."""
MODELS = tuple(f"torchscript_{name}" for name in TORCHSCRIPT)
CODE = tuple(name for name in ATTACKS if name not in BY_ONE_LAYER and name not in MODELS)

CONTROLLED = "each attempt that needs no privileges succeeds where every layer is missing"
UNCONTROLLED = (
    f"That {len(WITHOUT_CONTROL)} attempts would succeed anywhere: privileges that no build has, "
    "limits of resources and the machine's other processes are in their way without a sandbox."
)


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
    """Try each on kernels that lack no layer, and one each; and where every layer is lacking, so
    that an attempt that is broken does not count as denied.
    """
    controls = [name for name in chosen if name not in WITHOUT_CONTROL]
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
        failed = failed_controls(scene, run.folder / "build", controls, **options)
    broken = [f"{name} fails without the sandbox too: {text}" for name, text in failed.items()]
    counts = {
        "kinds": len(chosen),
        "attempts": tried,
        "succeeded": len(wrong),
        "controls": len(controls),
        "controls that failed": len(broken),
    }
    every = tried == len(chosen) * len(KERNELS)
    return Outcome(every and not wrong and not broken, counts, "\n".join([*wrong, *broken]))


ROWS = (
    Row(
        "torchscript-attacks",
        "TorchScript files that read, write, connect and spawn are denied, still so where any one "
        f"layer of the sandbox is missing; {CONTROLLED}",
        30,
        torchscript,
        f"{UNCONTROLLED} TorchScript has no operator that connects or spawns: these attempts are "
        "Python code in the same confinement, as if torch itself had been subverted.",
        fewest=4,
        minimums={"controls": 0.3},
    ),
    Row(
        "library-attacks",
        "code of a built library reaches no network and no other process, and writes nowhere but "
        f"to its scratch; {CONTROLLED}",
        40,
        libraries,
        f"{UNCONTROLLED} Python code in the confinement of verification and profiling stands in "
        "for a library's: the kernel sees the same system calls. Landlock alone keeps a library "
        "from the bundle that it belongs to.",
        fewest=4,
        minimums={"controls": 0.3},
    ),
)
