"""Cuts a language model's logits down to those of each entry's last token: its last matmul, by a
table of the vocabulary, is a quarter of a small model's work.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.errors import ImportFailed
from compiler.ir.onnx.model.opsets import opset_of
from compiler.ir.onnx.model.walking import walk

OUTPUT = "logits"
_AXIS = 1
"""Of the tokens of an entry."""
_FOLLOWING = ("Add", "Cast", "Div", "Identity", "Mul", "Tanh")
"""What computes each row by itself, by constants of no more than one row."""
_LEAST_OPSET = 10
"""From which on what a Slice keeps is an input."""


def keep_last_logits(model: onnx.ModelProto) -> None:
    """Changes the model, so that `logits` [entries, tokens, words] has one token; raises
    ImportFailed where its scores come of no matmul by a constant.
    """
    graph = model.graph
    output = next((one for one in graph.output if one.name == OUTPUT), None)
    if output is None or len(output.type.tensor_type.shape.dim) != _AXIS + 2:
        raise _refused(f"the model has no output {OUTPUT!r} of entries, tokens and words")
    opset = opset_of(model.opset_import)
    if opset < _LEAST_OPSET:
        raise _refused(f"the model has opset {opset}, older than {_LEAST_OPSET}")
    path = list(_path(graph))
    _cut(graph, path[-1])
    changed = {name for node in path for name in node.output}
    # Shapes that an exporter inferred are those of all tokens.
    left = [info for info in graph.value_info if info.name not in changed]
    del graph.value_info[:]
    graph.value_info.extend(left)
    output.type.tensor_type.shape.dim[_AXIS].dim_value = 1


def _path(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """From the node that gives the logits back to the matmul that they come of."""
    producers = {name: node for node in graph.node for name in node.output}
    constants = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = helper.get_attribute_value(node.attribute[0])
    readers = Counter(name for node in walk(graph.node) for name in node.input if name)
    readers.update(one.name for one in graph.output)
    name = OUTPUT
    while name in producers and readers[name] == 1:
        node = producers[name]
        inputs = [one for one in node.input if one and one not in constants]
        if _multiplies(node, constants) and inputs == [node.input[0]]:
            yield node
            return
        if node.op_type not in _FOLLOWING or len(inputs) != 1 or not _of_one_row(node, constants):
            break
        yield node
        name = inputs[0]
    raise _refused(f"{OUTPUT!r} comes of no matmul by a constant alone")


def _multiplies(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """True for a node that multiplies rows by a constant matrix."""
    if node.op_type == "MatMul":
        return node.input[1] in constants and len(constants[node.input[1]].dims) == 2
    return node.op_type == "MatMulNBits"


def _of_one_row(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """True if the node's constants are the same for all tokens, and add no axis to them."""
    shapes = [tuple(constants[name].dims) for name in node.input if name in constants]
    return all(len(shape) < _AXIS + 2 and set(shape[:-1]) <= {1} for shape in shapes)


def _cut(graph: onnx.GraphProto, matmul: onnx.NodeProto) -> None:
    """Gives the matmul the last token's row."""
    ends = {"first": -1, "end": np.iinfo(np.int64).max, "axis": _AXIS}
    names = {part: f"{OUTPUT}/last_{part}" for part in ends}
    graph.initializer.extend(
        numpy_helper.from_array(np.array([value], np.int64), names[part])
        for part, value in ends.items()
    )
    row = f"{OUTPUT}/last"
    inputs = [matmul.input[0], *names.values()]
    matmul.input[0] = row
    index = next(i for i, node in enumerate(graph.node) if node.output[0] == matmul.output[0])
    graph.node.insert(index, helper.make_node("Slice", inputs, [row], name=row))


def _refused(why: str) -> ImportFailed:
    return ImportFailed(
        f"the last token's logits cannot be computed alone: {why}",
        reason="logits",
        field="options.logits",
        hint="compile it with logits=all",
    )
