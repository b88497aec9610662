"""Verification of a library of which an earlier build judged the very code, with other weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler.isolation.step import Record
from compiler.toolchain import versions
from compiler.toolchain.objects import Objects
from compiler.verify.choosing import Choice, says_little
from compiler.verify.inputs.distributions import Distribution
from compiler.verify.inputs.inputs import Trial, Trials
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.bundle.numerics import AGREED, Verdict
from relaxd.contract.canonical import canonical_bytes

RETAINED = "opt"
"""The label of the point that is compared whatever was judged before, beside the cheapest one."""
_RECORDED = ("points", "verified_up_to", "reference", "inputs")


@dataclass(frozen=True)
class EarlierJudgement:
    """The word of an earlier build on the code of a library; by default none.

    record: its report, in part, None where there was none; key, fresh: under which name and where
    this build leaves its own, for later ones.
    """

    record: Mapping[str, Any] | None = None
    fresh: Objects | None = None
    key: str = ""

    @classmethod
    def of(
        cls,
        bundle: Path,
        manifest: Manifest,
        asked: tuple[Mapping[str, Any], str],
        stored: Path,
        fresh: Path,
    ) -> "EarlierJudgement":
        """That of the library in the bundle, among the objects of builds: of equal bytes, weights
        of equal shapes, an equal interface, equal compilers and references, of an equal request for
        a model of equal structure, which are `asked`.
        """
        interface = manifest.to_json()
        described = {
            "library": hashlib.sha256((bundle / manifest.library).read_bytes()).hexdigest(),
            "interface": [interface[name] for name in ("inputs", "outputs", "dims", "weights")],
            "target": manifest.target,
            "asked": list(asked),
            "versions": versions.versions(),
        }
        key = hashlib.sha256(b"judgement\0" + canonical_bytes(described)).hexdigest()
        content = Objects(stored).get(key)
        return cls(None if content is None else json.loads(content), Objects(fresh), key)

    @property
    def choice(self) -> Choice | None:
        """The distribution of inputs on which the outputs varied."""
        if self.record is None:
            return None
        return Choice(Distribution(self.record["inputs"]["distribution"]))

    def reduce(self, trials: Trials) -> Trials:
        """The trials that are left to compare: the cheapest one, that of the favoured sizes, and
        those at points that were not judged.
        """
        if self.record is None:
            return trials
        judged = [point["dims"] for point in self.record["points"]]

        def is_left(position: int, trial: Trial) -> bool:
            point = trial.point
            return position == 0 or point.label == RETAINED or dict(point.dims) not in judged

        chosen = (t for position, t in enumerate(trials.chosen) if is_left(position, t))
        return replace(trials, chosen=tuple(chosen))

    def settle(self, report: Record) -> Record:
        """The report with the points that were judged earlier; where none were, and all agree here,
        this build's are left for later ones.
        """
        if report["verdict"] not in AGREED:
            return report
        if self.record is not None:
            greatest = dict(self.record["verified_up_to"])
            for name, top in report["verified_up_to"].items():
                greatest[name] = max(top, greatest.get(name, 0))
            judged = {name: self.record[name] for name in ("points", "reference")}
            return {**report, "verified_up_to": greatest, "earlier": judged}
        passed = report["verdict"] == Verdict.PASSED and not says_little(report)
        if self.fresh is not None and passed:
            self.fresh.put(self.key, canonical_bytes({name: report[name] for name in _RECORDED}))
        return report
