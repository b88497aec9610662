"""Cuts as models of their own: inputs with symbolic shapes, constants, functions."""

import numpy as np
import onnx
import pytest

from compiler.bisection.cuts import declare_fixed, model_of, output, symbolic
from compiler.ir.onnx.model.nodes import Graph
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest


def declare(
    axes: dict[str, str], shapes: dict[str, tuple[int, ...]]
) -> tuple[list[str], list[str]]:
    """The inputs' specs and the dims, for values of these axes and sizes."""
    specs = {name: TensorSpec.of(name, f"float32{text}") for name, text in axes.items()}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    request = CompileRequest.of(dims={"n": "2:8%2", "s": "1:64"})
    inputs = symbolic(arrays, specs, request)
    texts = [f"{dim.name}={dim.min}:{dim.max}%{dim.multiple}" for dim in inputs.dims]
    return [str(spec) for spec in inputs.inputs], texts


def test_axes_stay_those_of_the_whole_model() -> None:
    inputs, dims = declare({"a": "[n,4]", "b": "[2*s,n]"}, {"a": (6, 4), "b": (10, 6)})
    assert inputs == ["a=float32[n,4]", "b=float32[2 * s,n]"]
    assert dims == ["n=2:8%2", "s=1:64%1"]


def test_an_axis_whose_dims_do_not_follow_becomes_a_dim_of_its_own() -> None:
    inputs, dims = declare({"a": "[n*s,4]", "b": "[n*s,(s+1)//2]"}, {"a": (12, 4), "b": (12, 3)})
    assert inputs == ["a=float32[cut_0,4]", "b=float32[cut_0,cut_1]"]
    assert dims == ["cut_0=1:None%1", "cut_1=1:None%1"]


def test_a_value_of_unknown_shape_has_the_shape_of_its_array() -> None:
    assert declare({}, {"a": (3, 4)}) == (["a=float32[3,4]"], [])


def test_an_empty_axis_is_admitted() -> None:
    assert declare({"a": "[found,4]"}, {"a": (0, 4)})[1] == ["found=0:None%1"]


def test_fixed_inputs_have_no_dims() -> None:
    inputs = declare_fixed({"a": np.zeros((3, 4), np.int64)})
    assert ([str(spec) for spec in inputs.inputs], inputs.dims) == (["a=int64[3,4]"], ())


@pytest.mark.parametrize("nodes", [{0, 1}, {1}])
def test_a_cut_is_a_model_with_the_constants_that_it_reads(nodes: set[int]) -> None:
    graph = Graph(
        onnx.parser.parse_model(
            """<ir_version: 9, opset_import: ["": 17]>
            g (float[n, 2] x) => (float[n, 2] y) <float[2] v = {1, 2}, float[2] w = {3, 4}> {
                a = Mul(x, v)
                y = Add(a, w)
            }"""
        ),
        {},
    )
    name = graph.inputs_of(frozenset(nodes))[0]
    inputs = [TensorSpec.of(name, "float32[2*n,2]")]
    cut = model_of(graph, frozenset(nodes), inputs, [output("y", "float32", 2)])
    onnx.checker.check_model(cut)
    assert [value.name for value in cut.graph.input] == [name]
    axes = [
        axis.dim_param or axis.dim_value for axis in cut.graph.input[0].type.tensor_type.shape.dim
    ]
    assert axes == ["2 * n", 2]
    assert [tensor.name for tensor in cut.graph.initializer] == ["v", "w"][2 - len(nodes) :]
