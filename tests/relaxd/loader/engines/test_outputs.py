"""Memory of outputs, which later calls write again."""

import gc

import ml_dtypes
import numpy as np
import pytest

from relaxd.loader.engines.outputs import Outputs, Wanted
from relaxd.loader.machine.addresses import address

FLOAT = np.dtype("float32")
LARGE = (64, 1024)


@pytest.fixture
def outputs() -> Outputs:
    return Outputs(2)


@pytest.mark.parametrize(
    "dtype", ["float32", "int64", "bool", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_arrays_are_dense_and_may_be_written(outputs: Outputs, dtype: str) -> None:
    for shape in ((), (0, 5), (3, 5), (3, 70_001)):
        created = outputs.empty(Wanted.of(0, shape, np.dtype(dtype)))
        assert (created.shape, created.dtype) == (shape, np.dtype(dtype))
        assert created.flags.c_contiguous
        created[...] = 1
        assert np.all(created == 1)


def test_memory_that_nobody_holds_is_written_again(outputs: Outputs) -> None:
    first = outputs.empty(Wanted.of(0, LARGE, FLOAT))
    position = address(first)
    assert position % 64 == 0
    second = outputs.empty(Wanted.of(0, LARGE, FLOAT))
    assert address(second) != position
    del first
    assert address(outputs.empty(Wanted.of(1, LARGE, FLOAT))) != position
    assert address(outputs.empty(Wanted.of(0, LARGE, FLOAT))) == position


@pytest.mark.parametrize(
    "part",
    [lambda y: y[3:5, ::2], lambda y: y.reshape(-1).T, lambda y: np.from_dlpack(y), memoryview],
    ids=["slice", "shape", "dlpack", "memory"],
)
def test_memory_of_which_somebody_holds_a_part_is_not(outputs: Outputs, part: object) -> None:
    created = outputs.empty(Wanted.of(0, LARGE, FLOAT))
    position, created[...] = address(created), 7
    stored = part(created)  # type: ignore[operator]
    del created
    gc.collect()
    other = outputs.empty(Wanted.of(0, LARGE, FLOAT))
    other[...] = 8
    assert address(other) != position
    assert np.all(np.asarray(stored) == 7)
    del stored
    assert address(outputs.empty(Wanted.of(0, LARGE, FLOAT))) == position


def test_other_extents_take_it_where_it_suffices_and_is_not_far_too_large(
    outputs: Outputs,
) -> None:
    position = address(outputs.empty(Wanted.of(0, (128, 1024), FLOAT)))
    assert address(outputs.empty(Wanted.of(0, (65, 1024), FLOAT))) == position
    assert address(outputs.empty(Wanted.of(0, (128, 1024), FLOAT))) == position
    small = outputs.empty(Wanted.of(0, (32, 1024), FLOAT))
    large = outputs.empty(Wanted.of(0, (128, 1024), FLOAT))
    assert not np.shares_memory(small, large)


def test_an_array_outlives_its_context() -> None:
    outputs = Outputs(1)
    created = outputs.empty(Wanted.of(0, LARGE, FLOAT))
    created[...] = 7
    del outputs
    gc.collect()
    np.full(LARGE, 8, FLOAT)
    assert np.all(created == 7)
