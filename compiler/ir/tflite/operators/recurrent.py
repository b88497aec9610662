"""Layers with a memory: their states are inputs and outputs of the model."""

from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op


@op("SVDF")
def svdf(node: Node) -> str:
    """A filter over time of low rank: features of the newest input join those of earlier ones,
    which weights [filters, memory] sum up.
    """
    if any(node.tensor(index).dtype != "float32" for index in (0, 1, 2)):
        node.fail("SVDF of integers is not supported", reason="unsupported_dtype")
    rank, state = node.option("rank"), node.variable(4)
    filters, memory = node.tensor(2).shape if node.rank(2) == 2 else (0, 0)
    if rank < 1 or filters < 1 or filters % rank:
        node.fail(f"{filters} filters of rank {rank}", reason="shape")
    feature = node.put("MatMul", node.x(0), node.transpose(node.x(1), 1, 0))
    before = node.put("Reshape", node.states.read(state), _ints(node, [-1, filters, memory]))
    earlier = node.put("Slice", before, *(_ints(node, [n]) for n in (1, memory, 2)))
    newest = node.put("Unsqueeze", feature, _ints(node, [-1]))
    activations = node.put("Concat", earlier, newest, axis=2)
    node.states.write(state, node.put("Reshape", activations, _ints(node, [-1, filters * memory])))
    weighted = node.put("Mul", activations, node.x(2))
    parts = node.put("Reshape", weighted, _ints(node, [-1, filters // rank, rank * memory]))
    y = node.put("ReduceSum", parts, _ints(node, [2]), keepdims=0)
    if node.has(3):
        y = node.put("Add", y, node.x(3))
    return node.activate(y)


def _ints(node: Node, values: list[int]) -> str:
    return node.const(values, "int64")
