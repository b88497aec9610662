"""Has a build's weights or operands calibrated by its samples, in a process of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import ImportFailed
from compiler.ir.weights import WeightQuantization
from compiler.isolation.step import Record, TaskLimits, run_task
from compiler.quantize.onnx.matmuls import Grid
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Signature
from compiler.verify.inputs.samples import from_npz
from compiler.verify.sides import Reference
from relaxd.contract.options import Calibration
from relaxd.contract.request import CompileRequest

_SECONDS = 1800.0
_MEMORY_BYTES = 8 << 30
Array = np.ndarray[Any, Any]
_THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The last bits of sums depend on how many threads add them up, and whole roundings on those."""


@dataclass(frozen=True)
class Calibrator:
    """reference: the model without rounding; samples: its inputs; folder: for what is found, which
    stays there as long as it is used.
    """

    reference: Reference
    samples: Mapping[str, Array]
    folder: Path

    def quantize(
        self, roundings: Mapping[bytes, WeightQuantization]
    ) -> dict[bytes, WeightQuantization]:
        """The roundings with the values of weights that could be calibrated, and for the others the
        reason; raises ImportFailed where the model does not run on the samples.
        """
        if not roundings:
            return {}
        listed = [[key.hex(), one.form.value, one.axis] for key, one in roundings.items()]
        records = self._run("compiler.quantize.calibration.task", "calibrated", roundings=listed)
        return {bytes.fromhex(one["weight"]): _read_record(roundings, one) for one in records}

    def scales(self) -> tuple[dict[str, Array], list[Record]]:
        """The scales of channels by value (see `MatmulQuantization`), and what
        was measured for each; raises ImportFailed where the model does not run on the samples.
        """
        records = self._run("compiler.quantize.calibration.smooth_task", "smoothed")
        return self._scales("smoothed"), records

    def grids(self) -> tuple[dict[str, Grid], dict[str, Array], list[Record]]:
        """The grids and scales by value (see `MatmulQuantization`), and what
        was measured for each grid; raises as `scales` does.
        """
        records = self._run("compiler.quantize.calibration.static_task", "placed")
        grids = {one["value"]: Grid(one["step"], one["zero"]) for one in records}
        return grids, self._scales("placed"), records

    def _scales(self, name: str) -> dict[str, Array]:
        return array_file.read(self.folder / name / "scales.arrays")

    def _run(self, task: str, name: str, **more: Any) -> list[Record]:
        """The records of a task in a folder of that name."""
        inputs, folder = self.folder / "calibration.arrays", self.folder / name
        array_file.write(inputs, self.samples)
        folder.mkdir()
        spec = {
            **self.reference.spec,
            "inputs": str(inputs),
            "folder": str(folder),
            **more,
        }
        outcome = run_task(
            task,
            spec,
            folder / "records.jsonl",
            TaskLimits.of_work(_SECONDS, _MEMORY_BYTES),
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
        return outcome.records


def calibrator_of(
    request: CompileRequest,
    wanted: Calibration,
    samples: Path | None,
    original: Reference,
    signature: Signature,
    folder: Path,
) -> Calibrator | None:
    """The calibrator by the samples, a file of the request's; None where the request wants another
    calibration. Raises RequestError where there are no samples.
    """
    if request.options.calibration is not wanted:
        return None
    request.require_samples()
    assert samples is not None
    own = signature.original
    return Calibrator(original, from_npz(samples, own.inputs, own.dims)[1], folder)


def _read_record(
    roundings: Mapping[bytes, WeightQuantization], record: Mapping[str, Any]
) -> WeightQuantization:
    values = Path(record["values"]) if "values" in record else None
    quantization = roundings[bytes.fromhex(record["weight"])]
    return replace(quantization, values=values, nearest=record.get("nearest"))
