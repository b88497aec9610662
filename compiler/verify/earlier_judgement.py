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
from compiler.verify.inputs.inputs import Signature, Trial, Trials
from compiler.verify.reach import warn_unreached
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
    this build leaves its own, for later ones, and mark that there is one of such a model; weights:
    the digest of this build's weights.
    """

    record: Mapping[str, Any] | None = None
    fresh: Objects | None = None
    key: str = ""
    mark: str = ""
    weights: str = ""

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
        a model of equal structure, which are `asked`. None of equal weights: the same model built
        again is compared whole, so that its bundle is the same.
        """
        interface = manifest.to_json()
        described = {
            "library": _digest_of(bundle / manifest.library),
            "interface": [interface[name] for name in ("inputs", "outputs", "dims", "weights")],
            "target": manifest.target,
            "asked": list(asked),
            "versions": versions.versions(),
        }
        key = hashlib.sha256(b"judgement\0" + canonical_bytes(described)).hexdigest()
        content, weights = Objects(stored).get(key), ""
        if (file := bundle / manifest.weights_file).exists():
            weights = _digest_of(file)
        record = None if content is None else json.loads(content)
        if record is not None and record.get("weights", weights) == weights:
            record = None
        return cls(record, Objects(fresh), key, _mark_of(asked), weights)

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

    def settle(self, report: Record, signature: Signature) -> Record:
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
            here = warn_unreached(signature, report["verified_up_to"])
            others = [warning for warning in report["warnings"] if warning not in here]
            return {
                **report,
                "verified_up_to": greatest,
                "warnings": [*warn_unreached(signature, greatest), *others],
                "earlier": judged,
            }
        passed = report["verdict"] == Verdict.PASSED and not says_little(report)
        if self.fresh is not None and passed:
            record = {name: report[name] for name in _RECORDED}
            self.fresh.put(self.key, canonical_bytes({**record, "weights": self.weights}))
            self.fresh.put(self.mark, b"judged")
        return report


def is_marked(stored: Path, asked: tuple[Mapping[str, Any], str]) -> bool:
    """Tell whether an earlier build judged some library that was made of an equal request for a
    model of equal structure, as `EarlierJudgement.of` has them: likely this build's, too.
    """
    return Objects(stored).get(_mark_of(asked)) is not None


def _mark_of(asked: tuple[Mapping[str, Any], str]) -> str:
    described = {"asked": list(asked), "versions": versions.versions()}
    return hashlib.sha256(b"mark\0" + canonical_bytes(described)).hexdigest()


def _digest_of(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
