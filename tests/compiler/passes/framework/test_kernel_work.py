"""The work of each kernel of a model, in the model's own dims."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import targets
from compiler.ir import import_model
from compiler.passes import manager
from compiler.passes.framework.kernel_work import KernelWork
from relaxd.contract.dims.axes import Axis
from relaxd.contract.request import CompileRequest

Table = dict[str, dict[str, object]]


def count(model: onnx.ModelProto, target: str = "native", **declared: Any) -> Table:
    imported = import_model(model, CompileRequest.of(**declared))
    work = KernelWork(imported.ranges)
    manager.to_kernels(imported.module, targets.resolve(target), imported.ranges, (work,))
    return work.table


def graph(nodes: list[onnx.NodeProto], shape: list[object], **weights: tuple[int, ...]):
    value, draw = helper.make_tensor_value_info, np.random.default_rng(0)
    constants = [
        numpy_helper.from_array(draw.standard_normal(size).astype("float32"), name)
        for name, size in weights.items()
    ]
    network = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(network, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("target", ["native", "opencl"])
def test_calls_of_one_kernel_are_summed(target: str) -> None:
    """Both matmuls have a row of 32 and a result of 32: one kernel, two calls."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["y"]),
    ]
    table = count(graph(nodes, ["batch", "seq", 32], a=(32, 32), b=(32, 32)), target)
    rows = [row for row in table.values() if row["flops"] != "0"]
    flops = sum(Axis(str(row["flops"])).evaluate({"batch": 3, "seq": 5}) for row in rows)
    assert sum(int(str(row["calls"])) for row in rows) == 2
    assert flops == 2 * 2 * 3 * 5 * 32 * 32
    assert {row["computes"] for row in rows} == {"float32"}


def test_winograd_counts_what_its_transforms_take() -> None:
    """Lavin and Gray's F(4x4, 3x3): 36 products of 16 by 32 channels for each tile of 4x4 results,
    7 operations for each of 36 transformed inputs, 10 for each result."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    table = count(graph(nodes, ["n", 16, "h", "w_"], w=(32, 16, 3, 3)))
    (row,) = (row for name, row in table.items() if "winograd" in name)
    for n, h, w in ((1, 4, 4), (2, 56, 56), (1, 5, 7)):
        tiles = n * -(-h // 4) * -(-w // 4)
        wanted = tiles * (36 * 2 * 16 * 32 + 7 * 36 * 16) + 10 * n * h * w * 32
        assert Axis(str(row["flops"])).evaluate({"n": n, "h": h, "w_": w}) == wanted


def test_a_kernel_whose_size_only_a_run_finds_has_no_counts() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Cast", ["found"], ["y"], to=TensorProto.FLOAT),
    ]
    table = count(graph(nodes, ["n", 8]))
    assert table["cast"] == {"calls": 1}
    assert Axis(str(table["count"]["bytes"])).evaluate({"n": 3}) == 3 * 8 + 8
