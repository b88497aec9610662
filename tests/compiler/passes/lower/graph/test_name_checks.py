"""Checks that fail at run time say what they demanded, in main and in the functions of branches."""

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from compiler import targets
from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.passes.manager import lower
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import Built, model_of, normal


def build(model: onnx.ModelProto) -> Built:
    """By the product's own passes for this machine."""
    imported, target = import_model(model, CompileRequest.of()), targets.resolve("native")
    return Built(
        imported,
        relax.VirtualMachine(
            generate(lower(imported.module, target, imported.ranges), target), tvm.cpu()
        ),
    )


def test_extents_that_differ_and_indices_out_of_range() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "y"], ["product"]),
        helper.make_node("Gather", ["x", "i"], ["rows"]),
    ]
    built = build(model_of(nodes, {"x": "float32[n,k]", "y": "float32[j,3]", "i": "int64[m]"}))
    fitting = {"x": normal(2, 4), "y": normal(4, 3), "i": np.array([1])}
    assert [output.shape for output in built.run(fitting)] == [(2, 3), (1, 4)]
    with pytest.raises(
        RuntimeError, match=r"\{\{MatMul 'product': matmul of .*: inner extents differ\}\}"
    ):
        built.run({**fitting, "y": normal(5, 3)})
    with pytest.raises(
        RuntimeError, match=r"\{\{Gather 'rows': an index is out of range for an axis of n\}\}"
    ):
        built.run({**fitting, "i": np.array([2])})


def test_what_defines_dims_and_is_checked_at_once() -> None:
    node = helper.make_node("Split", ["x", "sizes"], ["p", "q"])
    built = build(model_of([node], {"x": "float32[n]", "sizes": "int64[2]"}))
    parts = built.run({"x": normal(5), "sizes": np.array([2, 3])})
    assert [part.shape for part in parts] == [(2,), (3,)]
    with pytest.raises(RuntimeError, match=r"\{\{Split 'p': split is not in \[0, 2\^40\]\}\}"):
        built.run({"x": normal(5), "sizes": np.array([-1, 6])})


def test_a_branch_that_the_rest_of_the_model_needs() -> None:
    def branch(op: str, *inputs: str) -> onnx.GraphProto:
        node = helper.make_node(op, list(inputs), [f"{op}_out"])
        return helper.make_graph(
            [node], "branch", [], [helper.make_empty_tensor_value_info(f"{op}_out")]
        )

    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=-1),
        helper.make_node("Equal", ["shape", "one"], ["is_one"]),
        helper.make_node(
            "If",
            ["is_one"],
            ["flat"],
            "choice",
            then_branch=branch("Squeeze", "x", "last"),
            else_branch=branch("Identity", "x"),
        ),
        helper.make_node("Gemm", ["flat", "w"], ["y"]),
    ]
    constants = {"one": np.array([1]), "last": np.array([-1]), "w": normal(4, 3)}
    built = build(model_of(nodes, {"x": "float32[n,4,w]"}, constants, outputs=["y"]))
    with pytest.raises(
        RuntimeError, match=r"\{\{If 'choice': choice must take its then branch, .* w == 1"
    ):
        built.run({"x": normal(2, 4, 3)})
