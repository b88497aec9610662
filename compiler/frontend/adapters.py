"""The adapters that a request wants a library to take beside its weights (`lora_rank`)."""

from compiler.errors import ImportFailed
from compiler.ir.decoders.adapters import AdapterForm
from compiler.ir.files.model_file import LoadedModel, LoadedScript
from compiler.targets import Target
from relaxd.contract.request import CompileRequest


def form_of(request: CompileRequest) -> AdapterForm | None:
    """The rank and the matmuls of the adapters, None where the request wants none."""
    options = request.options
    if not options.lora_rank:
        return None
    return AdapterForm(options.lora_rank, frozenset(options.lora_modules))


def require(model: LoadedModel | LoadedScript, request: CompileRequest) -> None:
    """Raises ImportFailed where the request wants adapters, and the model takes none."""
    if not request.options.lora_rank:
        return
    if not isinstance(model, LoadedModel) or model.adapters is None:
        raise ImportFailed(
            "only decoders of GGUF files and of folders that save_pretrained wrote take adapters",
            reason="adapters",
            field="options.lora_rank",
            hint="compile that file or folder, or merge the adapter into the model",
        )


def require_processor(request: CompileRequest, target: Target) -> None:
    """Raises ImportFailed for adapters on a target whose kernels run on grids of threads."""
    if request.options.lora_rank and target.device is not None:
        raise ImportFailed(
            f"adapters are for processors, not for {target.name}",
            reason="adapters",
            field="options.lora_rank",
            hint="merge the adapter into the model",
        )
