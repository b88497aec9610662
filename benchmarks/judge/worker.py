"""The trials of one model in a process of its own: `python -m benchmarks.judge.worker SUBJECT`
reads tasks from standard input, one JSON document a line, and prints a row for each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.judge.outcome import NOT_BUILT, NOT_FOUND, Outcome, Row, Task


def main(name: str) -> None:
    """Print rows as they come."""
    tasks = [Task(**json.loads(line)) for line in sys.stdin]
    if not name.startswith("torchscript-") and not name.endswith("_jit"):
        # tvm_ffi would import torch, which takes seconds.
        sys.modules.setdefault("torch", None)
    from benchmarks.judge.subjects import SUBJECTS
    from benchmarks.judge.trial import Judge
    from compiler.errors import CompileError

    with TemporaryDirectory(prefix="relaxd-judge-") as scratch:
        try:
            judge = Judge(SUBJECTS[name], Path(scratch))
        except Exception as error:
            for task in tasks:
                _print(Row(task, Outcome(NOT_FOUND, why=f"{type(error).__name__}: {error}"[-300:])))
            return
        for task in tasks:
            try:
                outcome = judge.run(task)
            except CompileError as error:
                outcome = Outcome(NOT_BUILT, why=f"{error.code}: {error}")
            _print(Row(task, outcome))


def _print(row: Row) -> None:
    print(json.dumps(row.to_json()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
