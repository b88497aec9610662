"""Has the layers searched that a build keeps in float32, in a process of its own."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from compiler.errors import ImportFailed
from compiler.isolation.step import Record, TaskLimits, run_task
from compiler.quantize.onnx.matmuls import MatmulQuantization
from compiler.quantize.sensitivity import SCALES
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Signature, prepare
from compiler.verify.reference.onnx import ONNX, ORDERED, QUANTIZED
from compiler.verify.sides import Budget, Reference
from relaxd.contract.narrow import Unit
from relaxd.contract.options import Precision, PrecisionOver
from relaxd.contract.request import CompileRequest

_SECONDS = 1800.0
_MEMORY_BYTES = 8 << 30


@dataclass(frozen=True)
class Fallback:
    """reference: the model without rounding; inputs: files of `array_file`, cheapest first; budget:
    the error that is allowed; folder: scratch space; chosen: what samples decided before.
    """

    reference: Reference
    inputs: Sequence[Path]
    form: Precision
    budget: float
    folder: Path
    chosen: MatmulQuantization = field(default_factory=MatmulQuantization)

    def search(self, units: Sequence[Unit]) -> tuple[dict[str, str], Record]:
        """The layers of at least one unit that stay float32, with the reasons, and what was
        measured, as `relaxd.contract.bundle.report.FallbackReport`; raises ImportFailed where the
        reference does not answer in time.
        """
        errors, *groups = self._search(units)
        retained = {
            name: _reason(group, self.budget)
            for group in groups
            if group["kept"]
            for name in group["layers"]
        }
        return retained, {**errors, "groups": groups}

    def _search(self, units: Sequence[Unit]) -> list[dict[str, Any]]:
        array_file.write(self.folder / SCALES, self.chosen.scales)
        grids = self.chosen.grids
        spec = {
            **self.reference.spec,
            "engines": self.reference.engines,
            "inputs": list(map(str, self.inputs)),
            "folder": str(self.folder),
            "form": self.form.value,
            "grids": None if grids is None else {name: asdict(one) for name, one in grids.items()},
            "units": units,
            "budget": self.budget,
        }
        outcome = run_task(
            "compiler.quantize.sensitivity.task",
            spec,
            self.folder / "records.jsonl",
            TaskLimits.of_work(_SECONDS, _MEMORY_BYTES),
        )
        if not outcome.ended:
            raise ImportFailed(
                f"the layers to keep were not found: {outcome.reason}",
                reason="precision_over",
                field="options.precision_over",
                hint="declare smaller dims, or compile it with precision_over=fail",
                output=outcome.output,
            )
        return outcome.records


def fallback_of(
    request: CompileRequest,
    signature: Signature,
    samples: Path | None,
    original: Reference,
    chosen: MatmulQuantization,
    scratch: Path,
    *,
    more_points: bool,
) -> Fallback | None:
    """The fallback by the points at which a library is verified that runs on this machine: others
    have to choose the same layers. None where the request lets builds over their budget fail.

    more_points: whether there are points beside the samples.
    """
    options = request.options
    if options.precision_over is not PrecisionOver.KEEP:
        return None
    assert options.precision_error is not None
    folder, signature = scratch / "sensitivity", signature.original
    folder.mkdir()
    most = Budget().input_bytes
    trials = prepare(signature, samples, options.seed, folder, most, more_points=more_points)
    if original.engines == ONNX:
        # One thread: the last bits of sums depend on how many there are.
        original = replace(original, engines=QUANTIZED if signature.quantized else ORDERED)
    inputs = [trial.inputs for trial in trials.chosen]
    return Fallback(original, inputs, options.precision, options.precision_error, folder, chosen)


def _reason(group: Record, budget: float) -> str:
    others = len(group["layers"]) - 1
    what = f"rounding it and {others} beside it" if others else "rounding it alone"
    share = "infinitely" if group["alone"] is None else f"by {group['alone']:.3g} of its values"
    return f"{what} changes an output {share}, and precision_error is {budget:g}"
