"""Has a build's weights calibrated by its samples, in a process of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import ImportFailed
from compiler.ir.weights import Rounding
from compiler.isolation.step import run_task
from compiler.verify import npz
from compiler.verify.inputs import Signature
from compiler.verify.samples import from_npz
from compiler.verify.sides import Reference
from relaxd.contract.options import Calibration
from relaxd.contract.request import CompileRequest

_SECONDS = 1800.0
_MEMORY_BYTES = 8 << 30
_THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The last bits of sums depend on how many threads add them up, and whole roundings on those."""


@dataclass(frozen=True)
class Calibrator:
    """reference: the model without rounding; samples: its inputs; folder: for rounded weights,
    which stay there as long as they are used.
    """

    reference: Reference
    samples: Mapping[str, np.ndarray[Any, Any]]
    folder: Path

    def __call__(self, roundings: Mapping[bytes, Rounding]) -> dict[bytes, Rounding]:
        """The roundings with the values of weights that could be calibrated, and for the others the
        reason; raises ImportFailed where the model does not run on the samples.
        """
        if not roundings:
            return {}
        inputs, folder = self.folder / "calibration.npz", self.folder / "calibrated"
        npz.write(inputs, self.samples)
        folder.mkdir()
        spec = {
            "model": str(self.reference.model),
            "consts": self.reference.consts,
            "draws": {name: draw.to_json() for name, draw in self.reference.draws.items()},
            "inputs": str(inputs),
            "folder": str(folder),
            "roundings": [[key.hex(), one.form.value, one.axis] for key, one in roundings.items()],
        }
        outcome = run_task(
            "compiler.calibration.task",
            spec,
            folder / "records.jsonl",
            seconds=_SECONDS,
            memory_bytes=_MEMORY_BYTES,
            environment=_THREADS,
        )
        if not outcome.ended:
            raise ImportFailed(
                f"the calibration failed: {outcome.reason}",
                reason="calibration",
                field="options.calibration",
                hint="give smaller samples, or compile it with calibration=none",
                output=outcome.output,
            )
        return {bytes.fromhex(one["weight"]): _told(roundings, one) for one in outcome.records}


def calibrator_of(
    request: CompileRequest,
    samples: str | None,
    original: Reference,
    signature: Signature,
    folder: Path,
) -> Calibrator | None:
    """What calibrates weights by the samples, a file of the request's, where the request wants it;
    raises RequestError where there are none.
    """
    if request.options.calibration is Calibration.NONE:
        return None
    request.require_samples()
    assert samples is not None
    own = signature.original
    return Calibrator(original, from_npz(Path(samples), own.inputs, own.dims)[1], folder)


def _told(roundings: Mapping[bytes, Rounding], record: Mapping[str, Any]) -> Rounding:
    values = Path(record["values"]) if "values" in record else None
    found = roundings[bytes.fromhex(record["weight"])]
    return replace(found, values=values, nearest=record.get("nearest"))
