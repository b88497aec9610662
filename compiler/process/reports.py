"""Reports on a model without a library: the findings of an import, and the family of each kernel;
in this very process, as `compiler.build`.
"""

from pathlib import Path
from typing import Any

from compiler import targets
from compiler.frontend.entry import imported_from, open_for
from compiler.frontend.limits import within_limits
from compiler.ir import inspect_exported, inspect_model, inspect_tflite, inspect_torchscript
from compiler.ir.files.model_file import LoadedProgram, LoadedScript
from compiler.ir.strings import describe_strings, without_strings
from compiler.ir.tflite.file import is_tflite
from compiler.isolation.messages import FamiliesJob, InspectJob
from compiler.isolation.stages import OnEvent, enter
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage


def families(job: FamiliesJob, on_event: OnEvent = lambda event: None) -> dict[str, Any]:
    """Compiles a model up to the loops of its kernels, and reports which family took each; raises
    CompileError.
    """
    with enter(Stage.LOAD, on_event):
        request, target = CompileRequest.from_json(job.request), targets.resolve(job.target)
        model = open_for(job, request)
    with enter(Stage.IMPORT, on_event):
        imported, plan = imported_from(model, request, target)
    from compiler.passes import manager
    from compiler.passes.framework.kernel_notes import kernel_table
    from compiler.passes.framework.kernel_work import KernelWork
    from compiler.passes.framework.node_names import NodeNames
    from compiler.quantize.module_plan import pass_of

    with enter(Stage.PASS, on_event):
        names, work = NodeNames(imported.nodes), KernelWork(imported.ranges)
        scheduled = manager.to_kernels(
            imported.module,
            target,
            imported.ranges,
            (names, work),
            pass_of(plan, request, imported, target),
        )
        table = kernel_table(scheduled, names.of_kernels(scheduled), work.table)
        return {"target": target.name, "kernels": table}


def inspect(job: InspectJob, on_event: OnEvent = lambda event: None) -> dict[str, Any]:
    """Reports what an import finds, without compiling; raises CompileError."""
    with enter(Stage.LOAD, on_event):
        request = CompileRequest.from_json(job.request)
        if is_tflite(path := Path(job.model)):
            return inspect_tflite(path, request)
        model = open_for(job, request)
    with enter(Stage.IMPORT, on_event):
        if isinstance(model, LoadedProgram):
            return inspect_exported(model.path, request)
        if isinstance(model, LoadedScript):
            return inspect_torchscript(model.path, request)
        request = within_limits(model.limits, without_strings(request))
        report = inspect_model(model.proto, request)
        return report if model.strings is None else describe_strings(report, model.strings)
