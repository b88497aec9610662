"""Files of other formats: each is named, with the way to a model that compiles."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from compiler.errors import LoadError
from compiler.ir.files.model_file import open_model


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


def keras() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            archive.writestr(name, "{}")
    return packed.getvalue()


def array() -> bytes:
    stored = io.BytesIO()
    np.save(stored, np.ones(3))
    return stored.getvalue()


def arrays() -> bytes:
    stored = io.BytesIO()
    np.savez(stored, w=np.ones(3))
    return stored.getvalue()


def core_ml(kind: int) -> bytes:
    """specificationVersion 4, an empty description, and a model of that kind."""
    tag = kind << 3 | 2
    return b"\x08\x04\x12\x00" + bytes((tag & 0x7F | 0x80, tag >> 7)) + b"\x02\x08\x01"


@pytest.mark.parametrize(
    ("data", "what", "way"),
    [
        (b"\x1c\0\0\0ORTM" + bytes(64), "ONNX Runtime's own", "the .onnx file that it was made"),
        (b"\x1c\0\0\0ET12" + bytes(64), "ExecuTorch", ".pt2"),
        (safetensors(), "safetensors, weights without", "config.json"),
        (keras(), "Keras's own format", "model.export('model.onnx', format='onnx')"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5", "TF_USE_LEGACY_KERAS=1"),
        (core_ml(500), "Core ML", "nothing converts"),
        (core_ml(502), "Core ML", "torch.onnx.export"),
        (b"lmgg" + bytes(64), "GGML", "whisper.cpp"),
        (b"tjgg" + bytes(64), "GGML", "GGUF"),
        (pickle.dumps([1], 2), "a pickle", "skl2onnx"),
        (pickle.dumps({"w": 1.0}, 5), "a pickle", "torch.onnx.export"),
        (pickle.dumps({"w": 1.0}, 0), "a pickle", "skl2onnx"),
        (array(), "arrays of numpy", "torch.onnx.export"),
        (arrays(), "arrays of numpy", "torch.onnx.export"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "a web page", "download"),
    ],
)  # fmt: skip
def test_other_formats_are_named(tmp_path: Path, data: bytes, what: str, way: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=what) as caught:
        open_model(path)
    assert caught.value.code == "load.not_onnx"
    assert way in (caught.value.failure.hint or "")


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 1 << 40) + b"{" + bytes(64),
        struct.pack("<Q", 4) + b"{not" + bytes(64),
        struct.pack("<Q", 60_000) + b"[" * 60_000,
        struct.pack("<Q", 60_000) + b'{"a":' * 12_000,
        b"PK\x05\x06" + b"\xff" * 64,
        b"\x08\x04" + b"\xff" * 64,
    ],
)
def test_what_looks_like_another_format_is_no_more_than_no_onnx(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"is not an ONNX model|is truncated"):
        open_model(path)


@pytest.mark.parametrize(
    ("name", "what", "way"),
    [
        ("saved_model.pb", "SavedModel of TensorFlow", "tf2onnx.convert --saved-model"),
        ("Manifest.json", "package of Core ML", "torch.onnx.export"),
    ],
)
def test_folders_of_other_formats_are_named(tmp_path: Path, name: str, what: str, way: str) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(LoadError, match=what) as caught:
        open_model(tmp_path)
    assert caught.value.code == "load.folder"
    assert way in (caught.value.failure.hint or "")
