"""Files of other formats that people try, known by their content, each with the way to a model that
compiles.
"""

import json
import zipfile
from io import BytesIO
from itertools import islice

from compiler.errors import LoadError
from relaxd.contract.external_data import fields_of

_EXPORT = (
    "load it in PyTorch and export the module: torch.onnx.export(model.eval(), inputs, "
    "'model.onnx', dynamo=True)"
)
_KERAS = (
    "convert it: pip install tf2onnx tensorflow, then python -m tf2onnx.convert --keras "
    "model.keras --output model.onnx; or in Python model = keras.saving.load_model('model.keras'); "
    "model(example); model.export('model.onnx', format='onnx')"
)
_KERAS_2 = (
    "convert it: pip install tf2onnx tensorflow, then python -m tf2onnx.convert --keras model.h5 "
    "--output model.onnx; where Keras 2 saved it and that fails, pip install tf_keras and set "
    "TF_USE_LEGACY_KERAS=1 before; weights alone belong into their model: "
    "model.load_weights('model.h5'); model(example); model.export('model.onnx', format='onnx')"
)
_GGML = (
    "GGML",
    "fetch a language model as GGUF, or give the folder of its safetensors and config.json; of a "
    "model of whisper.cpp export the PyTorch model that it was made from",
)
_PICKLE = (
    "a pickle, which runs code when it is loaded",
    "where you trust it, " + _EXPORT + "; for scikit-learn pip install skl2onnx, then "
    "onnx.save(skl2onnx.to_onnx(model, inputs[:1]), 'model.onnx')",
)
_NUMPY = (
    "arrays of numpy, weights without the model",
    "put them into the module that they belong to, and " + _EXPORT,
)
_STARTS: tuple[tuple[int, bytes, tuple[str, str]], ...] = (
    (4, b"TFL3", ("TFLite beside other files", "give the .tflite file by itself")),
    (4, b"ORTM", ("ONNX Runtime's own format", "give the .onnx file that it was made from")),
    (4, b"ET12", ("ExecuTorch", "give the .pt2 file that it was made from")),
    (0, b"\x89HDF\r\n\x1a\n", ("HDF5, as Keras saved models before version 3", _KERAS_2)),
    *((0, magic, _GGML) for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")),
    *((0, bytes((0x80, protocol)), _PICKLE) for protocol in range(2, 6)),
    *((0, start, _PICKLE) for start in (b"(dp", b"(lp", b"ccopy_reg\n", b"c__builtin__\n")),
    (0, b"\x93NUMPY", _NUMPY),
    (
        0,
        b"version https://git-lfs",
        ("a pointer of Git LFS in place of the file", "fetch the file itself: git lfs pull"),
    ),
    *(
        (0, start, ("a web page", "download the file itself, not the page about it"))
        for start in (b"<!DOCTYPE html", b"<!doctype html", b"<html")
    ),
)
_CORE_ML = (
    "Core ML",
    "nothing converts Core ML back: export the model that it was made from, from PyTorch by "
    "torch.onnx.export(model.eval(), inputs, 'model.onnx', dynamo=True)",
)
_SAFETENSORS = (
    "safetensors, weights without the model",
    "give the folder that also has their config.json; else " + _EXPORT,
)
_LONGEST_HEADER = 100 << 20
_MOST_FIELDS = 1000
_CORE_ML_FIELDS = range(200, 3001)
"""The kinds of models of Core ML's Model.proto."""


def refusal_of(data: bytes) -> LoadError:
    """The error for a file that is not an ONNX model, by what it is instead."""
    if (known := _format_of(data)) is None:
        return LoadError(
            "the file is not an ONNX model",
            reason="not_onnx",
            field="model",
            hint="give the .onnx file itself, not an archive",
        )
    what, hint = known
    return LoadError(f"the file is {what}", reason="not_onnx", field="model", hint=hint)


def is_foreign(data: bytes) -> bool:
    """True for a file that begins as another format does."""
    return _by_start(data) is not None


def _by_start(data: bytes) -> tuple[str, str] | None:
    for offset, magic, known in _STARTS:
        if data.startswith(magic, offset):
            return known
    return None


def _format_of(data: bytes) -> tuple[str, str] | None:
    if (known := _by_start(data)) is not None:
        return known
    if _is_safetensors(data):
        return _SAFETENSORS
    names = _names_in(data)
    if "model.weights.h5" in names:
        return "Keras's own format", _KERAS
    if names and all(name.endswith(".npy") for name in names):
        return _NUMPY
    return _CORE_ML if _is_core_ml(data) else None


def _is_safetensors(data: bytes) -> bool:
    """True for a header of JSON after its length in 8 bytes."""
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(_LONGEST_HEADER, len(data) - 8) or data[8:9] != b"{":
        return False
    try:
        return isinstance(json.loads(data[8 : 8 + size]), dict)
    except (ValueError, RecursionError):
        return False


def _names_in(data: bytes) -> list[str]:
    if not data.startswith(b"PK"):
        return []
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return []


def _is_core_ml(data: bytes) -> bool:
    """True for a message with a version and one of Core ML's kinds of models."""
    fields = [number for number, *_ in islice(fields_of(data, 0, len(data)), _MOST_FIELDS)]
    return fields[:1] == [1] and any(field in _CORE_ML_FIELDS for field in fields)
