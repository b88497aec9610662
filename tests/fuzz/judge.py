"""Judges relaxd on a case, and if it is wrong, finds who is at fault."""

import tempfile
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from compiler.verify.judge.tolerance import compare, tolerance_of
from tests.fuzz.case import Array, Case
from tests.fuzz.child import Child, Died
from tests.fuzz.engines import Failed, Outputs, Question
from tests.quantized import compare_quantized

_NOT_WORSE = 4.0
_QUANTIZATION = 2.0**-16
"""What rounding alone explains: an error of at most so many times ONNX Runtime's, and of at most
that share of the greatest value of the graph, which is 256 roundings of float32.
"""


class Verdict(Enum):
    """rounding: neither relaxd nor ONNX Runtime is as close to float64 as a tolerance asks, since
    float32 is too short for the graph; invalid: ONNX Runtime and the reference run it no more than
    relaxd does; slow: the machine gave too little processor time for an answer.
    """

    RIGHT = "right"
    OURS = "ours"
    RUNTIME = "onnxruntime"
    BOTH = "both differ"
    QUANTIZATION = "rounding"
    CRASH = "crash"
    REFUSED = "refused"
    INVALID = "invalid"
    SLOW = "slow"

    @property
    def failure(self) -> bool:
        return self in (Verdict.OURS, Verdict.BOTH, Verdict.CRASH)


@dataclass(frozen=True)
class Judgement:
    """code: of the refusal or the crash; runs: points that were compared; apart: the outputs that
    are not ONNX Runtime's.
    """

    verdict: Verdict
    why: str = ""
    code: str = ""
    runs: int = 0
    apart: tuple[str, ...] = ()


class Judge:
    """Compiles and runs in one process, references in another: neither's death is this one's."""

    def __init__(
        self, geometry: str, seconds: float = 180.0, engine: str = "", llvm: int = 3
    ) -> None:
        self.geometry, self.llvm = geometry, llvm
        self._ours = Child(engine or "tests.fuzz.engines:relaxd", seconds)
        self._theirs = Child("tests.fuzz.engines:runtime", seconds)
        self._exact = Child("tests.fuzz.engines:exact", seconds)
        self._definition = Child("tests.fuzz.engines:definition", seconds)
        self._by_node = Child("tests.fuzz.engines:by_node", seconds)
        self.values = Child("tests.fuzz.engines:values", seconds)
        self._answer: tuple[Case, list[Outputs] | Died | Failed] | None = None
        self._expected: tuple[Case, list[Outputs] | Judgement] | None = None
        self._kernels: tuple[Case, tempfile.TemporaryDirectory[str]] | None = None

    def stop(self) -> None:
        references = (self._theirs, self._exact, self._definition, self._by_node)
        for child in (self._ours, *references, self.values):
            child.stop()
        if self._kernels is not None:
            self._kernels[1].cleanup()

    def judge_all(self, cases: Sequence[Case], union: Case) -> Iterator[tuple[Case, Judgement]]:
        """Judges cases that are quantized alike in one build of their union, and alone those that
        depart in it, or all where it fails: the union is at fault only where each is right.
        """
        full = self.judge(union)
        if len(cases) == 1:
            yield union, full
            return
        ran = full.apart or full.verdict is Verdict.RIGHT
        suspects = [
            position for position in range(len(cases)) if not ran or _departs(full, position)
        ]
        for position, case in enumerate(cases):
            if position not in suspects:
                yield case, Judgement(Verdict.RIGHT, runs=len(case.points))
        alone = [(cases[position], self.judge(cases[position])) for position in suspects]
        yield from alone
        if full.verdict.failure and not any(one.verdict.failure for _, one in alone):
            yield union, full

    def judge(self, case: Case) -> Judgement:
        """float64 is computed only where relaxd and ONNX Runtime disagree, or the latter fails."""
        theirs = self._outputs(case)
        if isinstance(theirs, Judgement):
            return theirs
        ours = self._ours.ask(Question(case, self.geometry, self.llvm, self._folder(case)))
        if isinstance(ours, Died):
            return Judgement(Verdict.SLOW if ours.slow else Verdict.CRASH, ours.why, "crash")
        if isinstance(ours, Failed):
            verdict = Verdict.CRASH if ours.compiled or broken(ours.code) else Verdict.REFUSED
            return Judgement(verdict, ours.why, ours.code)
        runs = len(case.points)
        apart = differences(ours, theirs, case)
        if not apart:
            return Judgement(Verdict.RIGHT, runs=runs)
        return replace(self._fault(case, ours, theirs, apart), apart=tuple(apart))

    def is_answered(self, case: Case) -> bool:
        """True if ONNX Runtime runs the case."""
        return not isinstance(self._runtime(case), (Died, Failed))

    def _runtime(self, case: Case) -> list[Outputs] | Died | Failed:
        """Run ONNX Runtime; kept for the last case."""
        if self._answer is None or self._answer[0] is not case:
            self._answer = case, self._theirs.ask(case)
        return self._answer[1]

    def _outputs(self, case: Case) -> list[Outputs] | Judgement:
        """Run ONNX Runtime, or else float64; kept for the last case, which is judged at one
        geometry after the other.
        """
        if self._expected is None or self._expected[0] is not case:
            self._expected = case, self._computed(case)
        return self._expected[1]

    def _folder(self, case: Case) -> str:
        """Where kernels of the case lie; those of the last case are dropped."""
        if self._kernels is None or self._kernels[0] is not case:
            if self._kernels is not None:
                self._kernels[1].cleanup()
            self._kernels = case, tempfile.TemporaryDirectory(prefix="relaxd-fuzz-kernels-")
        return self._kernels[1].name

    def _computed(self, case: Case) -> list[Outputs] | Judgement:
        theirs = self._runtime(case)
        if not isinstance(theirs, (Died, Failed)):
            return theirs
        want = self._exact.ask(case)
        if isinstance(want, (Died, Failed)):
            return Judgement(Verdict.INVALID, theirs.why)
        return _shrink(want)

    def _fault(
        self, case: Case, ours: list[Outputs], theirs: list[Outputs], apart: dict[str, str]
    ) -> Judgement:
        """Who is at fault where the two disagree, as `apart` says by output. What both agree on is
        not asked about: references have faults too.
        """
        runs, want = len(case.points), self._exact.ask(case)
        if isinstance(want, (Died, Failed)):
            why = f"{_first(apart)}; no float64 reference: {want.why}"
            return Judgement(Verdict.BOTH, why, runs=runs)
        exact = _shrink(want)
        theirs = self._peer(case, theirs)
        mine, others = (
            _first(_of(apart, differences(each, exact, case))) for each in (ours, theirs)
        )
        if mine and others:
            short = self._rounds(
                case, *(_error(each, exact, case, apart) for each in (ours, theirs))
            )
            verdict = Verdict.QUANTIZATION if short else Verdict.BOTH
            return Judgement(verdict, f"{mine}; ONNX Runtime: {others}", runs=runs)
        if others or self._defined(case, ours, apart):
            return Judgement(Verdict.RUNTIME, others or _first(apart), runs=runs)
        return Judgement(Verdict.OURS, mine or _first(apart), runs=runs)

    def _peer(self, case: Case, theirs: list[Outputs]) -> list[Outputs]:
        """Run ONNX Runtime in float32; node by node where it refuses the graph, so that
        `theirs` are float64's own, which nothing rounds.
        """
        if self.is_answered(case):
            return theirs
        result = self._by_node.ask(case)
        return theirs if isinstance(result, (Died, Failed)) else result

    def _rounds(self, case: Case, ours: float, theirs: float) -> bool:
        """True if rounding alone explains errors of that size. A tolerance is of an output's own
        size, and what a LayerNormalization makes of equal numbers is the noise of their mean.
        """
        values = self.values.ask(case)
        if isinstance(values, (Died, Failed)):
            return False
        greatest = max(_magnitude(array) for point in values for array in point.values())
        return ours <= _NOT_WORSE * theirs and ours <= _QUANTIZATION * greatest

    def _defined(self, case: Case, ours: list[Outputs], apart: dict[str, str]) -> bool:
        """True if onnx.reference agrees with relaxd on these outputs: ONNX Runtime computes float64
        by the same code as float32, faults included.
        """
        want = self._definition.ask(case)
        if isinstance(want, (Died, Failed)):
            return False
        return not _of(apart, differences(ours, _shrink(want), case))


def _departs(full: Judgement, position: int) -> bool:
    """True if an output of the graph at that place of a union does."""
    return any(name.startswith(f"g{position}_") for name in full.apart)


def differences(got: list[Outputs], want: list[Outputs], case: Case) -> dict[str, str]:
    """Where outputs depart by more than their dtype's tolerance, by name."""
    names = [output.name for output in case.model.graph.output]
    apart: dict[str, str] = {}
    for point, mine, theirs in zip(case.points, got, want, strict=True):
        for name, left, right in zip(names, mine, theirs, strict=True):
            plain = tolerance_of(str(right.dtype), None, None)
            result = (
                compare_quantized(left, right) if case.quantized else compare(left, right, plain)
            )
            if result.problem and name not in apart:
                apart[name] = f"{name} at {point}: {result.problem} (by {result.max_abs:.2g})"
    return apart


def _error(got: list[Outputs], want: list[Outputs], case: Case, outputs: Container[str]) -> float:
    """The greatest difference in these outputs; infinite where no number stands for it."""
    names, worst = [output.name for output in case.model.graph.output], 0.0
    for mine, theirs in zip(got, want, strict=True):
        for name, left, right in zip(names, mine, theirs, strict=True):
            if name in outputs:
                if left.shape != right.shape or left.dtype.kind != "f":
                    return np.inf
                apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
                worst = max(worst, float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0)))
    return worst


def _magnitude(array: Array) -> float:
    """The greatest of finite floats."""
    if array.dtype.kind != "f":
        return 0.0
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _of(outputs: Container[str], apart: dict[str, str]) -> dict[str, str]:
    return {name: why for name, why in apart.items() if name in outputs}


def _first(apart: dict[str, str]) -> str:
    return next(iter(apart.values()), "")


def _shrink(outputs: list[Outputs]) -> list[Outputs]:
    def quantized(array: Array) -> Array:
        return array.astype(np.float32) if array.dtype == np.float64 else array

    return [[quantized(array) for array in arrays] for arrays in outputs]


def broken(code: str) -> bool:
    """True if the failure is the compiler's own and not a refusal of the model."""
    return code.rpartition(".")[2] in ("internal", "failed", "crashed", "out_of_memory")
