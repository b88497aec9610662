"""The inputs of an ONNX graph: tensors, sequences whose items the request declares, and optional
values that are there if the request declares them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx

from compiler.errors import ImportFailed
from compiler.ir.graph.signature import FileInput
from compiler.ir.graph.values import Known, Tensor
from compiler.ir.onnx.model.dtypes import CARRIED, DTYPES, name_of
from compiler.ir.onnx.model.item_names import item_name, items_of
from compiler.ir.onnx.model.lists import Content, Items
from relaxd.contract.request import CompileRequest


@dataclass(frozen=True)
class Formal:
    """One input of the graph, and the tensors that a call gives for it."""

    name: str
    parts: tuple[FileInput, ...]
    listed: bool = False

    def content(self, values: Mapping[str, Content | None]) -> Content | None:
        """The input's content, from the values of its parts."""
        own = [values[part.name] for part in self.parts]
        if not self.listed:
            return own[0] if own else None
        return Items(tuple(value for value in own if isinstance(value, Known | Tensor)))


def formals_of(graph: onnx.GraphProto, request: CompileRequest) -> list[Formal]:
    """The graph's real inputs: those that no initialiser overrides."""
    constants = {tensor.name for tensor in graph.initializer} | {
        sparse.values.name for sparse in graph.sparse_initializer
    }
    declared = {spec.name for spec in request.inputs}
    return [
        _formal(value.name, value.type, declared)
        for value in graph.input
        if value.name not in constants
    ]


def _formal(
    name: str, kind: onnx.TypeProto, declared: Collection[str], optional: bool = False
) -> Formal:
    match kind.WhichOneof("value"):
        case "optional_type":
            return _formal(name, kind.optional_type.elem_type, declared, True)
        case "sequence_type":
            return _sequence(name, kind.sequence_type.elem_type, declared, optional)
    if optional and name not in declared:
        return Formal(name, ())
    return Formal(name, (_tensor(name, kind),))


def _sequence(name: str, kind: onnx.TypeProto, declared: Collection[str], optional: bool) -> Formal:
    names = items_of(name, declared)
    if not names and optional:
        return Formal(name, ())
    if not names:
        dtype = DTYPES.get(kind.tensor_type.elem_type, "float32")
        raise ImportFailed(
            f"input {name!r} is a sequence, whose length the model does not give",
            reason="input_length",
            field=f"inputs.{name}",
            hint=f'declare its items: --input "{item_name(name, 0)}={dtype}[n,...]" and so on',
        )
    return Formal(name, tuple(_tensor(item, kind, DTYPES) for item in names), True)


def _tensor(name: str, kind: onnx.TypeProto, dtypes: Mapping[int, str] = CARRIED) -> FileInput:
    form, tensor = kind.WhichOneof("value"), kind.tensor_type
    if form != "tensor_type" or tensor.elem_type not in dtypes:
        shown = (
            name_of(tensor.elem_type) if form == "tensor_type" else str(form).removesuffix("_type")
        )
        raise ImportFailed(
            f"input {name!r} is of type {shown}, which is not supported",
            reason="dtype",
            field=f"inputs.{name}",
            hint="inputs are tensors of bool, integers and floats, and sequences of them",
        )
    if not tensor.HasField("shape"):
        return FileInput(name, dtypes[tensor.elem_type], None)
    axes = tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param if d.HasField("dim_param") else None
        for d in tensor.shape.dim
    )
    return FileInput(name, dtypes[tensor.elem_type], axes)
