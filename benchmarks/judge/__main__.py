"""`python -m benchmarks.judge`: builds each model once, verifies it with several seeds, then plants
faults, and prints how many right builds are refused and how many faults are caught.

--quick takes three small models and two seeds. Exit status 1 where a right build is refused or a
fault is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from benchmarks.judge.faults import MODEL_FAULTS, OUTPUT_FAULTS, is_applicable
from benchmarks.judge.subjects import QUICK, SUBJECTS
from benchmarks.judge.trial import Judge, Outcome
from relaxd.contract.numerics import AGREED


@dataclass(frozen=True)
class Row:
    """One verification: of a right build where `fault` is empty."""

    subject: str
    seed: int
    fault: str
    outcome: Outcome

    @property
    def right(self) -> bool:
        """Tell whether verification passed a right build or caught a fault."""
        return (self.outcome.verdict in AGREED) != bool(self.fault)

    def __str__(self) -> str:
        result = f"{self.outcome.verdict} in {self.outcome.seconds:.1f} s"
        mark = "" if self.right else ("MISSED " if self.fault else "REFUSED ")
        return (
            f"{mark}{self.subject} seed {self.seed} {self.fault or 'right'}: {result} "
            + (self.outcome.why[:200])
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a verification, then both rates and the misses."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="*", choices=list(SUBJECTS), metavar="NAME")
    parser.add_argument("--seeds", type=int, help="5; 2 with --quick")
    parser.add_argument("--faults", type=int, default=1, help="of each kind in each model")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args(arguments)
    names = options.models or list(QUICK if options.quick else SUBJECTS)
    seeds = options.seeds or (2 if options.quick else 5)
    rows = list[Row]()
    for name in names:
        for row in judge(name, seeds, options.faults):
            rows.append(row)
            print(row, flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(*rates(rows), sep="\n")
    return 0 if all(row.right for row in rows) else 1


def judge(name: str, seeds: int, count: int) -> Iterator[Row]:
    """The rows of tool model: right builds, faults in outputs, and faults in kernels."""
    with TemporaryDirectory(prefix="relaxd-judge-") as scratch:
        folder = Path(scratch)
        tool = Judge.of(SUBJECTS[name], folder)
        model = onnx.load(tool.model)
        if reason := tool.build(model, folder / "right"):
            yield Row(name, 0, "", Outcome("not built", 0.0, reason))
            return
        for seed in range(seeds):
            yield Row(name, seed, "", tool.verify(folder / "right", seed))
        outputs = [spec for spec in tool.signature.outputs if "float" in spec.dtype]
        for number, fault in enumerate(OUTPUT_FAULTS):
            able = [spec.name for spec in outputs if is_applicable(fault, spec)]
            if able:
                output = able[number % len(able)]
                planted = {"fault": fault, "output": output}
                outcome = tool.verify(folder / "right", number, planted)
                yield Row(name, number, f"{fault} of {output}", outcome)
        yield from _in_kernels(name, tool, model, count, folder)


def _in_kernels(
    name: str, tool: Judge, model: onnx.ModelProto, count: int, folder: Path
) -> Iterator[Row]:
    for number, fault in enumerate(fault for fault in MODEL_FAULTS for _ in range(count)):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        if not fault(copy, np.random.default_rng(number)):
            continue
        bundle = folder / f"faulty{number}"
        reason = tool.build(copy, bundle)
        if reason is not None:
            print(f"{name}: {fault.__name__} does not compile: {reason}"[:200], flush=True)
            continue
        yield Row(name, number, fault.__name__, tool.verify(bundle, number))


def rates(rows: Sequence[Row]) -> Iterator[str]:
    """Both rates, the largest slack that passed, and what went wrong."""
    right = [row for row in rows if not row.fault]
    faulty = [row for row in rows if row.fault]
    refused = sum(not row.right for row in right)
    caught = sum(row.right for row in faulty)
    yield f"right builds refused: {refused} of {len(right)}"
    yield f"planted faults caught: {caught} of {len(faulty)}"
    passed = [row.outcome.slack for row in rows if row.outcome.verdict in AGREED]
    yield f"largest slack of what passed: {max(passed, default=0.0):.2g} of the spread"
    yield from (str(row) for row in rows if not row.right)


if __name__ == "__main__":
    sys.exit(main())
