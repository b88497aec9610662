"""Models of matmuls with block-wise quantized weights, larger together than caches are."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_RANDOM_BYTES = 1 << 22


@dataclass(frozen=True)
class Case:
    """`copies` matrices of [columns, depth] by one left side; level: the accuracy_level, 4 of
    which rounds the left side to 8 bits.
    """

    depth: int
    columns: int
    copies: int
    bits: int = 4
    block: int = 32
    level: int = 4

    @property
    def name(self) -> str:
        """For the table."""
        left = "int8" if self.level == 4 else "float32"
        return f"{self.depth}x{self.columns}, int{self.bits} by {left}"

    @property
    def bytes(self) -> int:
        """The bytes of one matrix, with a float32 scale for each block."""
        return self.depth * self.columns * self.bits // 8 + 4 * self.columns * (
            self.depth // self.block
        )


def cases(megabytes: int) -> list[Case]:
    """The matmuls of Qwen2.5-0.5B, and one of Llama-3.2-1B, in so many megabytes each."""
    shapes = [(896, 1152), (896, 4864), (4864, 896), (896, 151936), (2048, 8192)]
    forms = [(4, 4), (4, 0), (8, 4)]
    results = []
    for bits, level in forms:
        for depth, columns in shapes if (bits, level) == (4, 4) else shapes[1:2]:
            one = Case(depth, columns, 1, bits, 32, level)
            copies = max(1, -(-(megabytes << 20) // one.bytes))
            results.append(Case(depth, columns, copies, bits, 32, level))
    return results


def model_of(case: Case) -> onnx.ModelProto:
    """The first column of each product, joined."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, _RANDOM_BYTES, np.uint8)
    blocks, stored = case.depth // case.block, case.block * case.bits // 8
    nodes, tensors = [], [numpy_helper.from_array(np.array([0]), "first")]
    for index in range(case.copies):
        numbers = np.resize(np.roll(noise, 977 * index), (case.columns, blocks, stored))
        scales = (random.random((case.columns, blocks)) * 0.02).astype(np.float32)
        tensors += [
            numpy_helper.from_array(numbers, f"w{index}"),
            numpy_helper.from_array(scales, f"s{index}"),
        ]
        nodes += [
            helper.make_node(
                "MatMulNBits",
                ["x", f"w{index}", f"s{index}"],
                [f"y{index}"],
                domain="com.microsoft",
                K=case.depth,
                N=case.columns,
                bits=case.bits,
                block_size=case.block,
                accuracy_level=case.level,
            ),
            helper.make_node("Gather", [f"y{index}", "first"], [f"c{index}"], axis=1),
        ]
    nodes.append(helper.make_node("Concat", [f"c{i}" for i in range(case.copies)], ["y"], axis=1))
    graph = helper.make_graph(
        nodes,
        "nbits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", case.depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", case.copies])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
