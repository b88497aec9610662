"""State that a model keeps between calls: variables and variable tensors are inputs and outputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from compiler.errors import ImportFailed
from compiler.ir.tflite.file import File, Graph, Operator, Tensor

NEXT = ".next"
"""Behind the name of a state: its content after the call, which is an output."""


@dataclass
class States:
    """tensors: what each state holds, by name; handles: names by the number of the tensor that
    stands for a state; values: the content's name in the graph, as it is now.
    """

    tensors: dict[str, Tensor]
    handles: Mapping[int, str]
    values: dict[str, str] = field(default_factory=dict)

    def read(self, name: str) -> str:
        """The content's name in the graph."""
        return self.values[name]

    def write(self, name: str, value: str) -> None:
        """Replace the content."""
        self.values[name] = value


def states_of(file: File) -> States:
    """The states of the first graph; raises ImportFailed for a variable that nothing types."""
    graph = file.graphs[0]
    handles = {
        output: operator.shared_name or f"variable_{output}"
        for operator in graph.operators
        if operator.name == "VAR_HANDLE"
        for output in operator.outputs
    }
    types: dict[str, Tensor] = {}
    for operator in graph.operators:
        for handle, tensor in _accesses(operator):
            if handle in handles:
                types.setdefault(handles[handle], graph.tensors[tensor])
    variables = {
        number: tensor.name or f"state_{number}"
        for number, tensor in enumerate(graph.tensors)
        if tensor.variable and any(number in operator.inputs for operator in graph.operators)
    }
    types |= {name: graph.tensors[number] for number, name in variables.items()}
    for name in handles.values():
        if name not in types:
            raise ImportFailed(f"the variable {name!r} is never read or written", reason="state")
    return States(types, handles | variables)


def _accesses(operator: Operator) -> Iterator[tuple[int, int]]:
    """The handle that an operator reads or writes a variable by, and the tensor of its content."""
    if operator.name == "READ_VARIABLE" and operator.inputs and operator.outputs:
        yield operator.inputs[0], operator.outputs[0]
    if operator.name == "ASSIGN_VARIABLE" and len(operator.inputs) > 1:
        yield operator.inputs[0], operator.inputs[1]


def initial_contents(file: File) -> dict[str, Tensor]:
    """The constants that the graph of CALL_ONCE assigns to variables, by name."""
    return {
        name: tensor
        for operator in file.graphs[0].operators
        if operator.name == "CALL_ONCE" and 0 < operator.options["subgraph"] < len(file.graphs)
        for name, tensor in _assigned(file.graphs[operator.options["subgraph"]])
    }


def _assigned(graph: Graph) -> Iterator[tuple[str, Tensor]]:
    names = {
        output: operator.shared_name
        for operator in graph.operators
        if operator.name == "VAR_HANDLE"
        for output in operator.outputs
    }
    for operator in graph.operators:
        if operator.name == "ASSIGN_VARIABLE" and len(operator.inputs) > 1:
            handle, value = operator.inputs[:2]
            if handle in names and graph.tensors[value].data is not None:
                yield names[handle], graph.tensors[value]
