"""Limits a language model's logits to the tokens that the request wants (`logits=last`)."""

from dataclasses import replace

from compiler.errors import ImportFailed
from compiler.ir.files.model_file import LoadedModel, LoadedScript
from compiler.ir.onnx.model.last_logits import keep_last_logits
from relaxd.contract.options import LogitsForm
from relaxd.contract.request import CompileRequest


def as_wanted(
    model: LoadedModel | LoadedScript, request: CompileRequest
) -> LoadedModel | LoadedScript:
    """The model with the logits that the request wants: it is changed in place. Raises ImportFailed
    for one of which it cannot be.
    """
    if request.options.logits is LogitsForm.ALL:
        return model
    if isinstance(model, LoadedScript):
        raise ImportFailed(
            "the logits of the last token alone can be had of ONNX models and GGUF files",
            reason="logits",
            field="options.logits",
            hint="export the module to ONNX",
        )
    keep_last_logits(model.proto)
    # The reference is given the model as it is now, not the file.
    return replace(model, file=None)
