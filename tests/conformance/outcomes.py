"""How a case can end."""

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Outcome(Enum):
    """ok: within onnx's tolerances; refused: a typed error that names the cause before anything
    ran; wrong: other numbers, shapes or types; error: an internal error of the compiler or a
    failure at run time; crash: the process died;
    timeout: it was stopped; excluded: there is no such case.
    """

    OK = "ok"
    REFUSED = "refused"
    WRONG = "wrong"
    ERROR = "error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    EXCLUDED = "excluded"


@dataclass(frozen=True)
class Result:
    """One case's end: why in one line, empty when ok; seconds of wall clock."""

    name: str
    suite: str
    category: str
    outcome: Outcome
    why: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The form in the report."""
        return {**asdict(self), "outcome": self.outcome.value}
