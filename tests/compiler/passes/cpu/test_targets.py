"""Kernels for processors that this machine need not be: the code generator must take them, at the
width of the target.
"""

import numpy as np
import pytest
from tvm import relax

from compiler import targets
from compiler.passes.cpu.shared.register_tile import register_tile
from compiler.targets.vector_unit import VectorUnit

op = relax.op
TILES = {"x86-64-v2": (6, 8), "x86-64-v3": (6, 16)}
REGISTERS = {"x86-64-v2": "xmm", "x86-64-v3": "ymm"}


def matmul_graph(builder, x):
    return op.nn.relu(op.matmul(x, relax.const(np.ones((64, 80), "float32"))))


def conv_graph(builder, x):
    return op.nn.relu(
        op.nn.conv2d(x, relax.const(np.ones((24, 16, 3, 3), "float32")), padding=(1, 1))
    )


GRAPHS = {"product": (matmul_graph, ("n", 64)), "convolution": (conv_graph, ("n", 16, 20, 20))}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", TILES)
def test_register_tile_and_vector_width_follow_the_target(name, graph, assembly_for):
    target = targets.resolve(name)
    function, shape = GRAPHS[graph]
    unit = VectorUnit.of(target)
    assert register_tile(unit) == TILES[name]
    assert register_tile(unit)[0] * 2 + 2 < unit.registers
    assembly = assembly_for(function, {"x": (shape, "float32")}, target)
    accumulators = [
        line
        for line in assembly.splitlines()
        if ("vfmadd" in line or "mulps" in line) and REGISTERS[name] in line
    ]
    assert len(accumulators) >= TILES[name][0] * 2
