"""Files of safetensors: what the package of that name writes, and what is malformed."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from compiler.errors import LoadError
from compiler.ir.folder.safetensors import read_safetensors

ARRAYS: dict[str, np.ndarray] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array(7, np.int64),
    "c": np.zeros((0, 4), np.float16),
    "d": np.arange(3, dtype=np.uint8),
}


def bytes_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def file_of(table: Any, content: bytes = b"") -> np.ndarray:
    head = table if isinstance(table, bytes) else json.dumps(table).encode()
    return bytes_of(len(head).to_bytes(8, "little") + head + content)


def test_reads_what_the_package_writes() -> None:
    tensors = read_safetensors("m", bytes_of(save(ARRAYS, {"format": "pt"})))
    assert tensors.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert tensors[name].shape == array.shape
        numbers = np.frombuffer(tensors[name].data.tobytes(), array.dtype).reshape(array.shape)
        np.testing.assert_array_equal(numbers, array)
    assert {name: one.kind for name, one in tensors.items()} == {
        "a": "F32",
        "b": "I64",
        "c": "F16",
        "d": "U8",
    }


ENTRY = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        (1 << 63).to_bytes(8, "little"),
        file_of(b"["),
        file_of([]),
        file_of(b"[" * 100_000),
        file_of(
            b'{"a":' + json.dumps(ENTRY).encode() + b',"a":' + json.dumps(ENTRY).encode() + b"}"
        ),
        file_of({"a": ENTRY}, b"123"),
        file_of({"a": ENTRY}, b"12345"),
        file_of({"a": {**ENTRY, "shape": [5]}}, b"1234"),
        file_of({"a": {**ENTRY, "shape": [-4]}}, b"1234"),
        file_of({"a": {**ENTRY, "shape": [2.0, 2]}}, b"1234"),
        file_of({"a": {**ENTRY, "shape": [True, 4]}}, b"1234"),
        file_of({"a": {**ENTRY, "shape": [1 << 40, 1 << 40]}}, b"1234"),
        file_of({"a": {**ENTRY, "data_offsets": [4, 8]}}, b"12345678"),
        file_of({"a": {**ENTRY, "data_offsets": [4, 0]}}, b"1234"),
        file_of({"a": ENTRY, "b": ENTRY}, b"1234"),
        file_of({"a": {"dtype": "U8", "shape": [4]}}, b"1234"),
        file_of({"a": None}, b""),
    ],
)
def test_malformed_files_are_refused(data: Any) -> None:
    array = bytes_of(data) if isinstance(data, bytes) else data
    with pytest.raises(LoadError) as caught:
        read_safetensors("m", array)
    assert caught.value.code == "load.safetensors"


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(LoadError, match="F4") as caught:
        read_safetensors("m", file_of({"a": {**ENTRY, "dtype": "F4"}}, b"1234"))
    assert caught.value.code == "load.folder_format"


def test_what_is_cut_short_is_refused_at_any_length() -> None:
    data = save(ARRAYS)
    for length in range(len(data)):
        with pytest.raises(LoadError):
            read_safetensors("m", bytes_of(data[:length]))
