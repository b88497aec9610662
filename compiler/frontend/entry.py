"""Opens a job's model as the request wants it computed, and imports it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.frontend import adapters, custom_operators, kv_cache, logits, strings
from compiler.frontend.limits import within_limits
from compiler.ir import import_exported, import_model, import_torchscript
from compiler.ir.files.model_file import LoadedModel, LoadedProgram, LoadedScript, open_model
from compiler.ir.strings import without_strings
from compiler.isolation.messages import CompileJob, FamiliesJob, InspectJob
from compiler.quantize import plan
from compiler.quantize.measuring import Measurements
from compiler.quantize.onnx.dequantized_weights import keep_weights_quantized
from compiler.quantize.onnx.integer_operands import multiply_integers
from compiler.quantize.plan import QuantizationPlan, plan_graph, quantize_graph
from compiler.targets import Target
from compiler.verify.inputs.inputs import Signature
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    from compiler.ir.imported import Imported


def open_for(
    job: CompileJob | FamiliesJob | InspectJob, request: CompileRequest
) -> LoadedModel | LoadedScript:
    """The model as the request wants it computed, by the reference too."""
    model = open_model(Path(job.model), adapters.form_of(request))
    adapters.require(model, request)
    model = strings.as_wanted(model, request)
    model = custom_operators.as_wanted(model, request)
    model = logits.as_wanted(model, request)
    return plan.as_wanted(model, request)


def imported_from(
    model: LoadedModel | LoadedScript,
    request: CompileRequest,
    target: Target,
    measurements: Measurements | None = None,
) -> "tuple[Imported, QuantizationPlan]":
    """The model in Relax, and the plan that its graph was quantized by. Raises CompileError.

    measurements: what the plan may be measured with; None to quantize all that can be. Samples and
    sensitivity are about the inputs that an import finds: where they choose otherwise than the
    request alone, the graph is imported by what they choose instead.
    """
    if isinstance(model, LoadedScript):
        kv_cache.require_passed(request)
        plan.require_plain(request)
        load = import_exported if isinstance(model, LoadedProgram) else import_torchscript
        return load(model.path, request), QuantizationPlan()
    request = within_limits(model.limits, without_strings(request))
    # Where kernels run on a grid, no C code does: the operators' definitions are compiled.
    request = request if target.device is None else replace(request, operators=())
    proto = multiply_integers(model.proto) if _multiplies_bytes(target) else model.proto
    proto = keep_weights_quantized(proto) if target.device is None else proto
    first = plan_graph(proto, request)
    imported = import_model(quantize_graph(proto, first), request)
    plan.require_processor(request, target)
    adapters.require_processor(request, target)
    if measurements is None:
        return imported, first
    measured = measurements.measure_graph(proto, first, Signature.of(imported))
    if measured.matmuls is not first.matmuls:
        del imported
        imported = import_model(quantize_graph(proto, measured), request)
    return imported, measured


def _multiplies_bytes(target: Target) -> bool:
    """True if a target multiplies bytes faster than floats; they take a quarter of the memory."""
    from compiler.targets.vector_unit import VectorUnit

    return target.device is None and bool(VectorUnit.of(target).integer_dots)
