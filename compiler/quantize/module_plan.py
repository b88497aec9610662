"""The part of a quantization plan that the imported module decides: which of its constants are
weights of the file, and which of its matmuls multiply them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from compiler.ir.imported import Imported
from compiler.passes.pack.round_operands import RoundOperands
from compiler.passes.pack.round_weights import RoundWeights
from compiler.passes.pipelines import QuantizationPass
from compiler.quantize.measuring import Measurements
from compiler.quantize.plan import QuantizationPlan
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from compiler.verify.inputs.inputs import Signature
from relaxd.contract.options import Calibration, Precision, WeightForm
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    import tvm


def pass_of(
    plan: QuantizationPlan, request: CompileRequest, imported: Imported, target: Target
) -> QuantizationPass | None:
    """The pass that quantizes what the graph does not, before the plan is complete; None where the
    request wants none.
    """
    if request.options.precision is Precision.BFLOAT16 or plan.operands:
        unit = VectorUnit.of(target)
        return RoundOperands(
            unit, imported.ranges, imported.nodes, plan.operands, beside=plan.layers
        )
    if request.options.weights is not WeightForm.FLOAT32:
        return RoundWeights(request.options.weights, plan.file_weights)
    return None


def complete(
    plan: QuantizationPlan,
    quantization: QuantizationPass,
    module: tvm.IRModule,
    measurements: Measurements | None,
    signature: Signature | None,
) -> tuple[QuantizationPlan, QuantizationPass]:
    """The whole plan, and the pass that follows it. Raises ImportFailed where the reference does
    not answer, or the model does not run on the samples.

    module: as the pass will be given it. measurements: None to quantize all to nearest.
    """
    if isinstance(quantization, RoundWeights):
        return _with_weights(plan, quantization, module, measurements, signature)
    return _with_operands(plan, quantization, module, measurements, signature)


def _with_weights(
    plan: QuantizationPlan,
    quantization: RoundWeights,
    module: tvm.IRModule,
    measurements: Measurements | None,
    signature: Signature | None,
) -> tuple[QuantizationPlan, RoundWeights]:
    sites = quantization.find(module)
    roundings, by = sites.nearest, Calibration.NONE
    if measurements is not None and signature is not None:
        calibrator = measurements.calibrator(Calibration.GPTQ, signature)
        if calibrator is not None:
            roundings, by = calibrator.quantize(roundings), Calibration.GPTQ
    planned = replace(
        quantization, sites=sites, roundings=roundings, calibrated=by is Calibration.GPTQ
    )
    return replace(plan, weights=sites.describe(roundings, by)), planned


def _with_operands(
    plan: QuantizationPlan,
    quantization: RoundOperands,
    module: tvm.IRModule,
    measurements: Measurements | None,
    signature: Signature | None,
) -> tuple[QuantizationPlan, RoundOperands]:
    sites = quantization.find(module)
    measured, retained = plan.measured, quantization.retained
    if measurements is not None and signature is not None and sites.units:
        fallback = measurements.fallback(signature)
        if fallback is not None:
            retained, record = fallback.search(sites.units)
            measured = {"fallback": record, **measured}
    planned = replace(quantization, retained=retained)
    return replace(plan, layers=planned.describe(sites), measured=measured), planned
