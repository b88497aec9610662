"""Known arrays: numbers where every element is one, objects where a dim occurs."""

import numpy as np
import pytest
from tvm import tirx

from compiler.ir.graph.values import Known


def test_numbers_become_an_array_of_the_dtype() -> None:
    known = Known.of([[1, 2], [3, 4]], "int32")
    assert (known.dtype, known.data.dtype, known.shape, known.symbolic) == (
        "int32",
        np.int32,
        (2, 2),
        False,
    )
    assert Known.of(np.arange(3, dtype=np.uint8)).dtype == "uint8"
    assert Known.of(np.arange(3, dtype=np.uint8), "float32").data.dtype == np.float32


def test_an_element_with_a_dim_makes_the_array_symbolic() -> None:
    n = tirx.Var("n", "int64")
    known = Known.of([n, tirx.IntImm("int64", 3), 4])
    assert known.symbolic
    first, *rest = known.scalars()
    assert n.same_as(first)
    assert rest == [3, 4]


def test_constant_expressions_are_numbers() -> None:
    known = Known.of([tirx.IntImm("int64", 3), tirx.IntImm("int64", 4)])
    assert not known.symbolic
    assert known.data.tolist() == [3, 4]


@pytest.mark.parametrize("data", [[], [[], []], 5, tirx.IntImm("int64", 5)])
def test_empty_lists_and_single_numbers(data: object) -> None:
    known = Known.of(data)
    assert known.dtype == "int64"
    assert known.shape == np.array(data if isinstance(data, list) else 5).shape


def test_an_array_of_objects_keeps_its_shape() -> None:
    n = tirx.Var("n", "int64")
    data = np.empty((2, 1), dtype=object)
    data[0, 0], data[1, 0] = n, tirx.IntImm("int64", 2)
    known = Known.of(data)
    assert known.shape == (2, 1)
    assert known.scalars()[1] == 2
