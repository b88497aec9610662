"""How messages name a node of an ONNX graph, and its operator."""

import onnx


def label_of(proto: onnx.NodeProto) -> str:
    """A node's name, or that of its first output."""
    return proto.name or next((name for name in proto.output if name), proto.op_type)


def op_of(proto: onnx.NodeProto) -> str:
    """`Add`, or `com.microsoft.FusedMatMul` outside the standard domain."""
    return proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
