"""The references of a library that rounds: the model with the same rounded weights or operands."""

from collections.abc import Collection, Mapping
from pathlib import Path

from compiler.ir.model_file import LoadedScript, open_model
from compiler.ir.weights import Rounding
from compiler.verify.reference.onnx import written


def with_rounded(model: Path, roundings: Mapping[bytes, Rounding], scratch: Path) -> Path:
    """A copy of the ONNX model in the file, in the folder; the file itself where there is nothing
    to round.
    """
    # It is imported where a library has been compiled, with TVM: a model that cannot be read fails
    # before that.
    from compiler.ir.onnx.weights import round_weights

    if not roundings:
        return model
    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    round_weights(loaded.proto, roundings)
    return written(loaded.proto, scratch, "rounded")


def with_operands(
    model: Path, labels: Collection[str], scratch: Path, nudge: float = 0.0, name: str = "rounded"
) -> Path:
    """As `with_rounded`, with the operands of those nodes rounded; nudge: as in
    `compiler.ir.onnx.products`.
    """
    from compiler.ir.onnx.products import round_operands

    if not labels:
        return model
    loaded = open_model(model)
    assert not isinstance(loaded, LoadedScript)
    return written(round_operands(loaded.proto, labels, nudge), scratch, name)
