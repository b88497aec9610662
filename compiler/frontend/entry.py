"""Opens a job's model as the request wants it computed, and imports it."""

from pathlib import Path
from typing import TYPE_CHECKING

from compiler.frontend import kv_cache, logits
from compiler.ir import import_model, import_torchscript
from compiler.ir.files.model_file import LoadedModel, LoadedScript, open_model
from compiler.ir.onnx.quantize.integer_operands import multiply_integers
from compiler.ir.onnx.quantize.matmuls import MatmulQuantization
from compiler.isolation.messages import CompileJob, FamiliesJob, InspectJob
from compiler.quantize import plan
from compiler.targets import Target
from relaxd.contract.request import CompileRequest

if TYPE_CHECKING:
    from compiler.ir.imported import Imported


def open_for(
    job: CompileJob | FamiliesJob | InspectJob, request: CompileRequest
) -> LoadedModel | LoadedScript:
    """The model as the request wants it computed, by the reference too."""
    model = logits.as_wanted(open_model(Path(job.model)), request)
    return plan.as_wanted(model, request)


def imported_from(
    model: LoadedModel | LoadedScript,
    request: CompileRequest,
    target: Target,
    chosen: MatmulQuantization | None = None,
) -> "Imported":
    """The model in Relax; a model that was read is emptied. Raises CompileError.

    chosen: what became of products that the import could round; None where nothing was chosen.
    """
    if isinstance(model, LoadedScript):
        kv_cache.require_passed(request)
        plan.require_plain(request)
        return import_torchscript(model.path, request)
    proto = multiply_integers(model.proto) if _multiplies_bytes(target) else model.proto
    imported = import_model(proto, request, chosen)
    # The module holds its own copy of the weights.
    model.proto.Clear()
    return imported


def _multiplies_bytes(target: Target) -> bool:
    """True if a target multiplies bytes faster than floats; they take a quarter of the memory."""
    from compiler.targets.vector_unit import VectorUnit

    return target.device is None and bool(VectorUnit.of(target).integer_dots)
