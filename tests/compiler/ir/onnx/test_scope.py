"""Constants that a damaged file holds."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from compiler.errors import ImportFailed
from compiler.ir.onnx.inputs import formals_of
from compiler.ir.onnx.scope import dense_of, known_of
from relaxd.contract.request import CompileRequest


@pytest.mark.parametrize(
    "dims", [[0], [65], [2**31, 2**20], [2**62, 4], [-1, 64], [2**63 - 1]], ids=str
)
def test_dims_that_are_not_those_of_the_data(dims: list[int]) -> None:
    tensor = numpy_helper.from_array(np.ones(64, np.float32), "w")
    del tensor.dims[:]
    tensor.dims.extend(dims)
    with pytest.raises(ImportFailed) as caught:
        known_of(tensor)
    assert (caught.value.code, caught.value.failure.field) == ("import.malformed_tensor", "model")
    assert "'w'" in str(caught.value)


def test_an_element_type_that_does_not_exist() -> None:
    tensor = TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1234")
    with pytest.raises(ImportFailed, match="element type 99"):
        known_of(tensor)


def test_an_input_whose_element_type_does_not_exist() -> None:
    value = onnx.helper.make_tensor_value_info("x", 99, [1])
    graph = onnx.helper.make_graph([], "g", [value], [])
    with pytest.raises(ImportFailed, match="of type 99"):
        formals_of(graph, CompileRequest())


def test_indices_of_a_sparse_constant_that_are_no_numbers() -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = TensorProto(name="places", data_type=7, dims=[5], raw_data=b"x")
    with pytest.raises(ImportFailed, match="'places'"):
        dense_of(onnx.SparseTensorProto(values=values, indices=indices, dims=[4]))
