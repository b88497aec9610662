"""Counts of what became of graphs or programs, in one line."""

from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.judge import Judgement, Verdict


@dataclass
class Tally:
    """Counts of the graphs' verdicts."""

    graphs: int = 0
    runs: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def failures(self) -> int:
        return sum(count for verdict, count in self.verdicts.items() if verdict.failure)

    def add(self, judgement: Judgement) -> None:
        self.graphs += 1
        self.runs += judgement.runs
        self.verdicts[judgement.verdict] += 1
        if judgement.verdict is Verdict.REFUSED:
            self.refused[judgement.code] += 1

    def line(self, seed: int, geometry: str) -> str:
        """All of it in one line."""
        codes = ", ".join(f"{code} {count}" for code, count in sorted(self.refused.items()))
        of = self.verdicts
        return (
            f"{self.graphs} graphs, {self.runs} runs, {of[Verdict.OURS] + of[Verdict.BOTH]} wrong, "
            f"{of[Verdict.CRASH]} crashes, {of[Verdict.REFUSED]} refused ({codes or 'none'}), "
            f"{of[Verdict.RUNTIME]} wrong in onnxruntime alone, "
            f"{of[Verdict.QUANTIZATION]} too short for float32, {of[Verdict.INVALID]} invalid, "
            f"{of[Verdict.SLOW]} slow, seed {seed}, geometry {geometry}"
        )
