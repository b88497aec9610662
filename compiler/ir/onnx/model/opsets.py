"""Opsets of the standard domain: which one a model imports, and a model brought to a newer one."""

from collections.abc import Iterable

import onnx

from compiler.errors import ImportFailed, summary


def opset_of(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    """The opset of the standard domain; 1 where none is imported."""
    return next((one.version for one in imports if one.domain in ("", "ai.onnx")), 1)


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The opset of each domain, of which the standard one is empty."""
    return {("" if one.domain == "ai.onnx" else one.domain): one.version for one in imports}


def convert_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A copy of the model at that opset, or at its own if that is newer; raises ImportFailed where
    onnx's converter gives up, as it does on some dynamic shapes.
    """
    own = opset_of(model.opset_import)
    if own >= opset:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, opset)
    # The converter's assertions arrive as RuntimeError, what it does not know as others.
    except Exception as error:
        raise ImportFailed(
            f"the model is of opset {own}, and what is asked for takes opset {opset}, to which "
            f"onnx cannot convert it: {summary(error)}",
            reason="opset",
            hint=f"export the model at opset {opset} or later",
        ) from error
