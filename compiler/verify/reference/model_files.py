"""Writes an ONNX model of any size to a file, the data of a large one beside it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

INLINE_BYTES = 1 << 30
"""Protobuf writes no message of 2 GiB, and does not even give its size."""
_SMALL = 1024


def write_model(model: "onnx.ModelProto", path: Path, inline: int = INLINE_BYTES) -> None:
    """Write the model, which stays as it is; constants of more than `inline` bytes together go to
    a file beside it.
    """
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= inline:
        path.write_bytes(model.SerializeToString())
        return
    bare = type(model)()
    _copy(model, bare, without="graph")
    _copy(model.graph, bare.graph, without="initializer")
    with path.with_suffix(".data").open("wb") as data:
        for tensor in model.graph.initializer:
            _put(tensor, bare.graph.initializer.add(), data)
    path.write_bytes(bare.SerializeToString())


def _copy(source: Any, target: Any, *, without: str) -> None:
    """All fields but one."""
    for field, value in source.ListFields():
        if field.name == without:
            continue
        if field.is_repeated or field.message_type is not None:
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def _put(tensor: "onnx.TensorProto", to: "onnx.TensorProto", data: Any) -> None:
    """A tensor whose numbers are in the file `data`, a small one as it is."""
    from onnx.external_data_helper import set_external_data

    raw = tensor.raw_data
    if len(raw) < _SMALL:
        to.CopyFrom(tensor)
        return
    _copy(tensor, to, without="raw_data")
    to.raw_data = b""
    set_external_data(to, Path(data.name).name, offset=data.tell(), length=len(raw))
    to.ClearField("raw_data")
    data.write(raw)
