"""An ONNX graph that grows node by node, each named as what it gives."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.ir.decoders.design import Named
from compiler.ir.decoders.quantized import Array, Quantized, dequantize, pack

MICROSOFT = "com.microsoft"
OPSET = 21


class Graph:
    """Nodes and constants, in the order in which they were asked for; name: of the whole."""

    def __init__(self, name: str = "decoder") -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.functions: dict[str, onnx.FunctionProto] = {}

    def node(self, op: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        """The name of its first output."""
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attributes))
        return outputs[0]

    def call(
        self, function: onnx.FunctionProto, inputs: list[str], *outputs: str, **attributes: Any
    ) -> str:
        """The name of the first output of a function, which becomes one of the model's."""
        self.functions[function.name] = function
        return self.node(function.name, inputs, *outputs, domain=function.domain, **attributes)

    def constant(self, name: str, array: Array) -> str:
        """The name, under which the first array stays."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def matmul(self, x: str, matrix: Named, output: str) -> str:
        """x times the transpose of the matrix [columns, depth]."""
        if isinstance(matrix.tensor, Quantized):
            return self._matmul_blocks(x, matrix.name, matrix.tensor, output)
        transposed = self.constant(f"{matrix.name}.T", matrix.tensor.T)
        return self.node("MatMul", [x, transposed], output)

    def _matmul_blocks(self, x: str, name: str, table: Quantized, output: str) -> str:
        inputs = [
            x,
            self.constant(f"{name}.numbers", table.numbers),
            self.constant(f"{name}.scales", table.scales),
        ]
        if table.zeros is not None:
            inputs.append(self.constant(f"{name}.zeros", _zeros(table.bits, table.zeros)))
        columns, depth = table.shape
        return self.node(
            "MatMulNBits",
            inputs,
            output,
            domain=MICROSOFT,
            K=depth,
            N=columns,
            bits=table.bits,
            block_size=table.block,
        )

    def rows(self, table: Named, indices: str, output: str) -> str:
        """The table's rows of these indices."""
        tensor = table.tensor
        if not isinstance(tensor, Quantized) or tensor.zeros is not None:
            return self.node(
                "Gather", [self.constant(table.name, dequantize(tensor)), indices], output, axis=0
            )
        flat = tensor.numbers.reshape(tensor.shape[0], -1)
        # The matmul's own tensors in another shape: the library holds them once.
        return self.node(
            "GatherBlockQuantized",
            [
                self.constant(f"{table.name}.rows", flat),
                indices,
                self.constant(f"{table.name}.scales", tensor.scales),
            ],
            output,
            domain=MICROSOFT,
            bits=tensor.bits,
            block_size=tensor.block,
            gather_axis=0,
            quantize_axis=1,
        )

    def model(
        self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """The whole of it."""
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs)
        functions = list(self.functions.values())
        domains = dict.fromkeys([MICROSOFT, *(one.domain for one in functions)], 1)
        opsets = [helper.make_opsetid(*each) for each in {"": OPSET, **domains}.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)
        # Constants come last and go one at a time: the model that is copied has none yet, and none
        # is held twice.
        for name in list(self.constants):
            model.graph.initializer.append(self.constants.pop(name))
        return model


def _zeros(bits: int, zeros: Array) -> Array:
    """Whole ones are packed row by row, as MatMulNBits has them."""
    if zeros.dtype != np.uint8:
        return zeros
    even = np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2))) if bits == 4 else zeros
    return pack(bits, even).reshape(-1)
