import io

import numpy as np
import pytest

import relaxd
from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.errors import InputError
from relaxd.loader.tensors import element_types


def patterns(dtype: str) -> np.ndarray:
    """Every element of a type."""
    bits = 8 if dtype.startswith("float8") else 2 if dtype.endswith("2") else 4
    codes = np.arange(1 << bits, dtype=np.uint8)
    return codes.view(dtype) if "float" in dtype else codes.astype(dtype)


def hold(dtype: str) -> np.ndarray:
    """Their bytes."""
    own = patterns(dtype)
    return own.view(np.uint8) if "float" in dtype else own.astype(STORAGE[dtype])


@pytest.fixture(scope="module")
def model(bundles):
    return relaxd.load(bundles / "narrow")


def resize(arrays):
    """An array for every input, all of one length."""
    return {f"x_{dtype}": np.resize(arrays(dtype), 256) for dtype in STORAGE}


def assert_copied(outputs):
    for dtype in STORAGE:
        got = outputs[f"y_{dtype}"]
        assert got.dtype.name == dtype
        bytes_ = got.view(np.uint8) if "float" in dtype else got.astype(STORAGE[dtype])
        np.testing.assert_array_equal(bytes_, np.resize(hold(dtype), 256), err_msg=dtype)


def test_arrays_of_ml_dtypes(model):
    assert_copied(model.run(resize(patterns)))


def test_arrays_of_bytes(model):
    assert_copied(model.run(resize(hold)))


def test_arrays_of_another_layout(model):
    backward = {name: array[::-1].copy()[::-1] for name, array in resize(patterns).items()}
    assert_copied(model.run(backward))
    empty = {name: array[:0] for name, array in resize(patterns).items()}
    for name, array in model.run(empty).items():
        assert array.shape == (0,)
        assert array.dtype.name == name.removeprefix("y_")


@pytest.mark.parametrize("dtype", [name for name in STORAGE if name != "float8_e5m2"])
def test_what_numpy_reads_from_a_file(dtype):
    """It writes ml_dtypes' arrays as bytes without a name, and cannot read float8_e5m2 at all."""
    file = io.BytesIO()
    np.save(file, patterns(dtype))
    file.seek(0)
    raw = np.load(file)
    assert raw.dtype.name == "void8"
    spec = TensorSpec.of("x", f"{dtype}[n]")
    np.testing.assert_array_equal(element_types.bytes_of(raw, spec), hold(dtype))


def test_a_scalar_keeps_its_rank():
    spec = TensorSpec.of("x", "int4[]")
    assert element_types.bytes_of(np.array(-3).astype("int4"), spec).tolist() == -3


def test_bytes_beyond_the_type(model):
    inputs = resize(hold)
    inputs["x_int4"] = np.full(256, 8, np.int8)
    with pytest.raises(InputError, match="'x_int4': values of int4 must be -8 to 7, got 8 to 8"):
        model.run(inputs)
    inputs = resize(hold)
    inputs["x_float4_e2m1fn"] = np.full(256, 16, np.uint8)
    with pytest.raises(InputError, match="float4_e2m1fn must be 0 to 15"):
        model.run(inputs)


def test_another_dtype_is_not_cast(model):
    inputs = resize(hold)
    inputs["x_float8_e5m2"] = np.zeros(256, np.float32)
    with pytest.raises(InputError, match="must be float8_e5m2, got float32"):
        model.run(inputs)
    inputs = resize(hold)
    inputs["x_float8_e5m2"] = patterns("float8_e4m3fn")
    with pytest.raises(InputError, match="must be float8_e5m2, got float8_e4m3fn"):
        model.run(inputs)
