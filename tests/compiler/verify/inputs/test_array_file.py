from pathlib import Path

import ml_dtypes
import numpy as np

from compiler.verify.inputs import array_file


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    arrays = {
        "odd/name": np.arange(6, dtype=np.int8).reshape(2, 3),
        "scalar": np.array(True),
        "half": np.array([1.5, -2], ml_dtypes.bfloat16),
        "eight": np.array([[1.5, -2, np.nan]], ml_dtypes.float8_e4m3fn).T,
        "four": np.array([-8, 7], ml_dtypes.int4),
        "scale": np.array(0.5, ml_dtypes.float8_e8m0fnu),
        "none": np.zeros((0, 3), np.float64),
    }
    array_file.write(tmp_path / "a", arrays)
    back = array_file.read(tmp_path / "a")
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert back[name].tobytes() == array.tobytes()
        assert back[name].shape == array.shape
