"""Tasks of the judge and their outcomes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from relaxd.contract.bundle.numerics import AGREED, Verdict

NOT_FOUND = "not found"
"""Of a model: its file could not be found or exported here."""
NOT_BUILT = "not built"
"""Of a right model: compilation refused it."""
NOT_PLANTED = "not planted"
"""Of a fault: the model has nothing that it changes, or the faulty copy is refused."""
NO_EFFECT = "without effect"
"""Of a fault that passed: no output differs by more than references differ among themselves."""
ENDED = "ended"
"""The trial's process crashed or ran out of time."""
_CAUGHT = (Verdict.FAILED, Verdict.INCONCLUSIVE)


@dataclass(frozen=True)
class Task:
    """A verification: of a right build where `fault` is empty; number: of the fault, which decides
    with the seed where it is planted; geometry: as in `tests.support.geometries`.
    """

    subject: str
    seed: int
    fault: str = ""
    number: int = 0
    geometry: str = "native"


@dataclass(frozen=True)
class Outcome:
    """The verdict of a verification, or one of the words of this module.

    seconds: of the verification; build_seconds: of the compilation before it; why: of a failure;
    slack: the largest, as a share of the spread of its output.
    """

    verdict: str
    seconds: float = 0.0
    build_seconds: float = 0.0
    why: str = ""
    slack: float = 0.0


@dataclass(frozen=True)
class Row:
    """A task and its outcome."""

    task: Task
    outcome: Outcome

    @property
    def counted(self) -> bool:
        """Tell whether it says anything of verification."""
        apart = [NOT_FOUND, NOT_PLANTED, NO_EFFECT]
        if self.task.fault:
            apart.append(NOT_BUILT)
        return self.outcome.verdict not in apart

    @property
    def right(self) -> bool:
        """Tell whether verification passed a right build or caught a fault."""
        verdict = self.outcome.verdict
        return verdict in (_CAUGHT if self.task.fault else AGREED)

    def to_json(self) -> dict[str, Any]:
        """One element of the file of rows."""
        return {**asdict(self.task), "outcome": asdict(self.outcome)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Row:
        """Read what `to_json` wrote."""
        task = {key: value for key, value in document.items() if key != "outcome"}
        return cls(Task(**task), Outcome(**document["outcome"]))

    def __str__(self) -> str:
        task, outcome = self.task, self.outcome
        wrong = "MISSED " if task.fault else "REFUSED "
        mark = wrong if self.counted and not self.right else ""
        what = f"{task.fault} {task.number}" if task.fault else "right"
        built = f", built in {outcome.build_seconds:.1f} s"
        return (
            f"{mark}{task.subject} seed {task.seed} {task.geometry} {what}: {outcome.verdict} in "
            f"{outcome.seconds:.1f} s{built} {outcome.why[:240]}"
        )
