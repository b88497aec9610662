"""Measurements that decide a quantization plan: by samples, scales and quantized weights; by the
reference, the layers that have to stay float32. All of it is data; nothing here changes a model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.quantize.calibration.run import Calibrator, calibrator_of
from compiler.quantize.onnx.matmuls import MatmulQuantization
from compiler.quantize.plan import QuantizationPlan, plan_graph
from compiler.quantize.sensitivity.run import Fallback, fallback_of
from compiler.verify.inputs.inputs import Signature
from compiler.verify.sides import Reference
from relaxd.contract.options import Calibration
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Measurements:
    """The model, its samples and a folder, by which a plan is measured.

    original: the model without quantization; samples: the file of its inputs; folder: for what is
    found, which stays there as long as it is used; more_points: measure sensitivity at points of
    the dims' ranges, not at the samples alone.
    """

    request: CompileRequest
    original: Reference
    samples: Path | None
    folder: Path
    more_points: bool

    def measure_graph(
        self, model: onnx.ModelProto, plan: QuantizationPlan, signature: Signature
    ) -> QuantizationPlan:
        """The plan of the ONNX graph by what samples and sensitivity tell; the plan given where the
        request wants neither, or they change nothing.
        """
        if plan.layers is None:
            return plan
        if (smoother := self.calibrator(Calibration.SMOOTH, signature)) is not None:
            scales, records = smoother.scales()
            plan = plan_graph(model, self.request, MatmulQuantization(scales=scales))
            plan = replace(plan, measured={"smoothed": records})
        if (placer := self.calibrator(Calibration.STATIC, signature)) is not None:
            grids, scales, records = placer.grids()
            plan = plan_graph(model, self.request, MatmulQuantization(scales=scales, grids=grids))
            plan = replace(plan, measured={"placed": records})
        fallback = self.fallback(signature, plan.matmuls)
        if fallback is None or plan.layers is None or not plan.layers.layers:
            return plan
        retained, record = fallback.search([(name,) for name in plan.layers.layers])
        measured = {"fallback": record, **plan.measured}
        if retained:
            plan = plan_graph(model, self.request, replace(plan.matmuls, retained=retained))
        return replace(plan, measured=measured)

    def calibrator(self, wanted: Calibration, signature: Signature) -> Calibrator | None:
        """The calibrator; None where the request wants another calibration."""
        return calibrator_of(
            self.request, wanted, self.samples, self.original, signature, self.folder
        )

    def fallback(
        self, signature: Signature, chosen: MatmulQuantization | None = None
    ) -> Fallback | None:
        """The search for layers that stay float32; None where the request wants none."""
        return fallback_of(
            self.request,
            signature,
            self.samples,
            self.original,
            chosen or MatmulQuantization(),
            self.folder,
            more_points=self.more_points,
        )
