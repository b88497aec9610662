"""Constants in the memory of arrays, and arrays in that of constants."""

import ml_dtypes
import numpy as np
import pytest

from compiler.ir.arrays import allocate, as_constant, values_of


def test_an_aligned_array_is_not_copied() -> None:
    array = allocate((3, 5))
    array[...] = np.arange(15).reshape(3, 5)
    constant = as_constant(array)
    assert values_of(constant).ctypes.data == array.ctypes.data
    del array
    np.testing.assert_array_equal(values_of(constant), np.arange(15).reshape(3, 5))


def test_an_array_that_may_not_be_written_is_copied() -> None:
    array = allocate((2,), np.int64)
    array[...] = 1 << 40
    array.flags.writeable = False
    constant = as_constant(array)
    assert values_of(constant).tolist() == [1 << 40] * 2
    assert values_of(constant).ctypes.data != array.ctypes.data


ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ARRAYS: dict[str, np.ndarray] = {
    "transposed": ARRAY.transpose(2, 0, 1),
    "unaligned": ARRAY.reshape(-1)[1:],
    "empty": ARRAY[:0],
    "scalar": np.array(0.1),
    "int64": np.array([1 << 40, -1]),
    "bool": np.array([True, False]),
    "float16": ARRAY.astype(np.float16),
    "bfloat16": ARRAY.astype(ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_elements_shape_and_dtype_are_those_of_the_array(name: str) -> None:
    array = ARRAYS[name]
    constant = as_constant(array)
    assert str(constant.ty.dtype) == array.dtype.name
    assert tuple(int(extent) for extent in constant.ty.shape) == array.shape
    values = values_of(constant)
    assert values.dtype == array.dtype
    np.testing.assert_array_equal(values, array)
