"""The ONNX model that a TFLite file describes: the same arithmetic in the same order, images with
channels last.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from compiler.errors import CompileError, ImportFailed
from compiler.ir.tflite import (
    operators,  # noqa: F401  fills the registry
    registry,
)
from compiler.ir.tflite.file import File, Operator, Tensor
from compiler.ir.tflite.node import Node, element_type
from compiler.ir.tflite.states import NEXT, states_of
from compiler.ir.tflite.writer import Writer

SHOWN = 20
"""An error message names this many operators; its details name all."""
BATCH = "batch"
"""The name of the first axis of any size, where one input has it."""


def model_of(file: File) -> onnx.ModelProto:
    """Write the model; raises ImportFailed naming the operator at fault."""
    check_operators(file)
    return _Translation(file).run()


def label_of(position: int, operator: Operator) -> str:
    """The name of the operator at a position of the graph."""
    return f"{operator.name} {position}"


def missing_operators(file: File) -> list[dict[str, str]]:
    """The operators that nothing translates, as failures list them."""
    return [
        {
            "node": label_of(position, operator),
            "op": operator.name,
            "why": f"no importer for TFLite's {operator.name}",
        }
        for position, operator in enumerate(file.graphs[0].operators)
        if operator.name not in registry.TABLE
    ]


def check_operators(file: File) -> None:
    """Raise ImportFailed naming every operator that nothing translates."""
    missing = missing_operators(file)
    if not missing:
        return
    shown = "; ".join(f"{each['node']}: {each['why']}" for each in missing[:SHOWN])
    more = f"; and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    count = "1 node is" if len(missing) == 1 else f"{len(missing)} nodes are"
    raise ImportFailed(
        f"{count} not supported: {shown}{more}",
        reason="unsupported_op",
        node=missing[0]["node"],
        op=missing[0]["op"],
        hint="`relaxd inspect` lists every node of the model",
        unsupported=missing,
    )


class _Translation:
    def __init__(self, file: File) -> None:
        self.graph = file.graphs[0]
        self.states = states_of(file)
        self.writer = Writer()
        self.values: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        inputs = self._choose_names(self.graph.inputs, file.input_names, "input", set())
        taken = set(inputs)
        outputs = self._choose_names(self.graph.outputs, file.output_names, "output", taken)
        self.inputs, self.outputs = inputs, outputs
        self.state_names = {name: _unused(name, taken) for name in self.states.tensors}
        self.next_names = {name: _unused(name + NEXT, taken) for name in self.states.tensors}
        self.writer.taken = frozenset(taken)

    def _choose_names(
        self, tensors: Sequence[int], signature: Mapping[int, str], default: str, taken: set[str]
    ) -> list[str]:
        """A name of its own for each input or output."""
        names = [signature.get(number) or self.graph.tensors[number].name for number in tensors]
        return [_unused(name or f"{default}_{index}", taken) for index, name in enumerate(names)]

    def run(self) -> onnx.ModelProto:
        for number, name in zip(self.graph.inputs, self.inputs, strict=True):
            self.values[number] = name
        self.states.values.update(self.state_names)
        for position, operator in enumerate(self.graph.operators):
            self._translate(label_of(position, operator), operator)
        self.writer.begin("outputs")
        for number, name in zip(self.graph.outputs, self.outputs, strict=True):
            self.writer.give(self._value(number, "outputs"), name)
        for state, name in self.next_names.items():
            self.writer.give(self.states.values[state], name)
        return self.writer.model(self._declared_inputs(), self._declared_outputs())

    def _translate(self, label: str, operator: Operator) -> None:
        self.writer.begin(label)
        handles = self.states.handles
        tensors = tuple(self.graph.tensors[n] if n >= 0 else None for n in operator.inputs)
        node = Node(
            operator,
            label,
            tensors,
            tuple(
                "" if n < 0 or n in handles else self._value(n, label, operator.name)
                for n in operator.inputs
            ),
            tuple(self.graph.tensors[number] for number in operator.outputs),
            self.constants,
            self.writer,
            self.states,
            {index: handles[n] for index, n in enumerate(operator.inputs) if n in handles},
        )
        results = _handle(node)
        for number, name in zip(operator.outputs, results, strict=False):
            self.values[number] = name

    def _value(self, number: int, label: str, op: str | None = None) -> str:
        """The name of a tensor's value; raises ImportFailed where nothing gives it."""
        if number in self.values:
            return self.values[number]
        tensor = self.graph.tensors[number]
        data = tensor.data
        if data is None and 0 in tensor.shape and tensor.dtype in ("float32", "int32", "int64"):
            data = np.empty(tensor.shape, tensor.dtype)
        if data is None:
            raise ImportFailed(
                f"the tensor {tensor.name!r} of {tensor.dtype} is produced nowhere before",
                reason="dangling",
                node=label,
                op=op,
            )
        name = self.writer.named_constant(f"tensor/{number}", data)
        self.constants[name] = data
        self.values[number] = name
        return name

    def _declared_inputs(self) -> list[onnx.ValueInfoProto]:
        tensors = [self.graph.tensors[number] for number in self.graph.inputs]
        named = sum(0 in tensor.open for tensor in tensors) == 1
        declared = [
            _declare(name, tensor, named) for name, tensor in zip(self.inputs, tensors, strict=True)
        ]
        states = self.states.tensors
        return declared + [_declare(self.state_names[name], states[name], named) for name in states]

    def _declared_outputs(self) -> list[onnx.ValueInfoProto]:
        tensors = [self.graph.tensors[number] for number in self.graph.outputs]
        pairs = [*zip(self.outputs, tensors, strict=True)]
        pairs += [(self.next_names[name], tensor) for name, tensor in self.states.tensors.items()]
        return [
            helper.make_tensor_value_info(
                name, _element_type(name, tensor), [None] * len(tensor.shape)
            )
            for name, tensor in pairs
        ]


def _handle(node: Node) -> Sequence[str]:
    """The names of the operator's outputs; errors name it."""
    try:
        results = registry.TABLE[node.operator.name](node)
    except CompileError:
        raise
    # Errors of numpy and onnx on numbers that no handler has checked.
    except (ArithmeticError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ImportFailed(
            f"{node.operator.name} cannot be read: {error}",
            reason="invalid_node",
            node=node.label,
            op=node.operator.name,
        ) from error
    return [results] if isinstance(results, str) else results


def _declare(name: str, tensor: Tensor, named: bool) -> onnx.ValueInfoProto:
    axes: list[int | str | None] = [
        (BATCH if named and axis == 0 else None) if axis in tensor.open or size < 0 else size
        for axis, size in enumerate(tensor.shape)
    ]
    return helper.make_tensor_value_info(name, _element_type(name, tensor), axes)


def _element_type(name: str, tensor: Tensor) -> int:
    try:
        return element_type(tensor.dtype)
    except (TypeError, KeyError):
        raise ImportFailed(
            f"{name!r} is of type {tensor.dtype}, which is not supported",
            reason="dtype",
            field=f"inputs.{name}",
            hint="inputs are tensors of bool, integers and floats",
        ) from None


def _unused(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken; it is taken from then on."""
    unused, count = name, 0
    while unused in taken:
        count += 1
        unused = f"{name}_{count}"
    taken.add(unused)
    return unused
