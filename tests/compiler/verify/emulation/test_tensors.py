"""Files of tensors come back as they were written."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compiler.verify.emulation import tensors

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))
)


@given(arrays=st.lists(ARRAYS, max_size=4))
def test_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, arrays: list[tensors.Array]
) -> None:
    path = tmp_path_factory.mktemp("tensors") / "t"
    tensors.write(path, arrays)
    back = tensors.read(path)
    assert [(array.dtype, array.shape) for array in back] == [
        (array.dtype, array.shape) for array in arrays
    ]
    for got, want in zip(back, arrays, strict=True):
        np.testing.assert_array_equal(got, want)


def test_bfloat16_and_what_does_not_lie_in_order(tmp_path: Path) -> None:
    bfloats = np.arange(6).astype(ml_dtypes.bfloat16)
    turned = np.arange(12, dtype="float32").reshape(3, 4).T
    tensors.write(tmp_path / "t", [bfloats, turned])
    first, second = tensors.read(tmp_path / "t")
    assert first.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(first.astype("f4"), bfloats.astype("f4"))
    np.testing.assert_array_equal(second, turned)


def test_an_array_inside_of_other_bytes() -> None:
    data = b"xxxx" + np.arange(6, dtype="int32").tobytes()
    array = tensors.from_bytes(data, "int32", (2, 3), 4)
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))
    assert tensors.from_bytes(data, "bfloat16", (0, 2), 4).shape == (0, 2)
