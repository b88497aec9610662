"""Reads a model that nobody has vouched for: its format, sizes, truncation, and data files kept
inside the model's own folder.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from compiler.errors import LoadError, summary
from compiler.ir.decoders.adapters import AdapterForm, AdapterSites
from compiler.ir.decoders.quantized import Array
from compiler.ir.decoders.text_files import TextFiles
from compiler.ir.encoders.design import Limit
from compiler.ir.files.foreign import is_foreign, refusal_of
from compiler.ir.files.model_texts import check_texts
from compiler.ir.files.node_order import sort_nodes
from compiler.ir.files.torch_archives import is_exported, is_torchscript
from compiler.ir.folder.archive import Files, is_folder, read_files, release_pages
from compiler.ir.folder.model import model_of_folder
from compiler.ir.gguf.decoder import decoder_of
from compiler.ir.gguf.file import is_gguf, read_gguf
from compiler.ir.gguf.tokenizer import text_files
from compiler.ir.strings import StringPart
from compiler.ir.tflite.file import is_tflite, read_tflite
from compiler.ir.tflite.model import model_of
from compiler.isolation.level import Level
from relaxd.contract.bundle.adapters import Adapters
from relaxd.contract.external_data import read_varint
from relaxd.contract.model_files import MODEL, checked_name
from relaxd.contract.model_folder import CONFIG
from relaxd.errors import DeclarationError

MAX_MODEL_BYTES = (2 << 30) - 1
MAX_DATA_BYTES = 64 << 30
_DIGEST_CHUNK = 1 << 20


@dataclass(frozen=True)
class LoadedModel:
    """proto: the model with its external data in it; digest: over the file and every data file it
    names; file: the ONNX file that holds the same, None where the proto was made of another or of a
    tar; text: what it states of words and conversations; limits: of its inputs' axes; adapters:
    those that it takes beside its weights; strings: what was cut off it, None where it has none.
    """

    proto: onnx.ModelProto
    digest: str
    file: Path | None = None
    text: TextFiles = field(default_factory=TextFiles)
    limits: tuple[Limit, ...] = ()
    adapters: Adapters | None = None
    strings: StringPart | None = None


@dataclass(frozen=True)
class LoadedScript:
    """A TorchScript archive, which only torch can read; digest: over the file."""

    path: Path
    digest: str
    text: TextFiles = field(default_factory=TextFiles)


@dataclass(frozen=True)
class LoadedProgram(LoadedScript):
    """A `.pt2` archive of torch.export, which the importer reads without torch."""


def open_model(path: Path, adapters: AdapterForm | None = None) -> LoadedModel | LoadedScript:
    """The model in the file or folder, whichever its format; raises LoadError.

    adapters: those that it is to take; only decoders of GGUF files and folders do.
    """
    if is_folder(path):
        return _read_folder(read_files(path), adapters)
    if is_tflite(path):
        return _read_tflite(path)
    exported = is_exported(path)
    if not (exported or is_torchscript(path)):
        return _read_gguf(path, adapters) if is_gguf(path) else read_model(path)
    size = path.stat().st_size
    if size > MAX_DATA_BYTES:
        raise LoadError(
            f"the model has {size} bytes, the limit is {MAX_DATA_BYTES}",
            reason="too_large",
            field="model",
        )
    digest = f"sha256:{_digest_of(path).hex()}"
    return LoadedProgram(path, digest) if exported else LoadedScript(path, digest)


def _read_gguf(path: Path, adapters: AdapterForm | None) -> LoadedModel:
    """The decoder that a GGUF file describes; raises LoadError."""
    file, sites = read_gguf(path), _sites(adapters)
    model = decoder_of(file, sites)
    check_texts(model)
    digest = f"sha256:{_digest_of(path).hex()}"
    described = sites.described if sites else None
    return LoadedModel(model, digest, text=text_files(file), adapters=described)


def _sites(adapters: AdapterForm | None) -> AdapterSites | None:
    return None if adapters is None else AdapterSites(adapters)


def _read_tflite(path: Path) -> LoadedModel:
    """The ONNX model that a TFLite file describes; raises LoadError, ImportFailed."""
    model = model_of(read_tflite(path))
    digest = f"sha256:{_digest_of(path).hex()}"
    return LoadedModel(model, digest)


def _read_folder(files: Files, adapters: AdapterForm | None) -> LoadedModel:
    """The ONNX model of a folder or a tar, or the model that files of Hugging Face's describe;
    raises LoadError.
    """
    if CONFIG not in files.arrays:
        return _read_onnx(files)
    sites = _sites(adapters)
    model, text, limits = model_of_folder(files, sites)
    check_texts(model)
    described = sites.described if sites else None
    return LoadedModel(model, files.digest, text=text, limits=limits, adapters=described)


def refuse_code(model: Path, has_operators: bool, sandbox: Level, unlimited: bool) -> None:
    """Raise LoadError for a TorchScript model, and for custom operators: loading one and verifying
    the other runs code of the request's, which could read and write any file here, or where it is
    not limited start any number of processes.
    """
    if has_operators:
        subject = "custom operators run code of their own when they are verified"
        field, way_out = "operators", "leave them out"
    elif is_folder(model) or is_exported(model) or not is_torchscript(model):
        return
    else:
        subject = "a TorchScript model runs code of its own when it is loaded"
        field, way_out = "model", "export the model to ONNX"
    lacking = "the files of others" if not sandbox.isolates_files else "starting many processes"
    where = "where the kernel has Landlock or user namespaces are allowed"
    limited = "as another user than root, or where others may read what the log names"
    raise LoadError(
        f"{subject}, and the sandbox here does not keep it from {lacking}: its level is "
        f"{sandbox.value!r}",
        reason="sandbox_too_weak",
        field=field,
        hint=f"run the compiler {limited if unlimited else where}, {way_out}, or, if everybody who "
        "sends requests is trusted, set RELAXD_ALLOW_UNSANDBOXED_TORCHSCRIPT=true",
        level=sandbox.value,
    )


def read_model(path: Path, max_bytes: int = MAX_MODEL_BYTES) -> LoadedModel:
    """The ONNX model in the file, with its data; raises LoadError."""
    if path.is_dir():
        raise LoadError("the model is a folder", reason="unreadable", field="model")
    return _read_onnx(read_files(path), max_bytes)


def _read_onnx(files: Files, max_bytes: int = MAX_MODEL_BYTES) -> LoadedModel:
    data = files.arrays[MODEL] if len(files.arrays) > 1 else next(iter(files.arrays.values()))
    _check_size(len(data), max_bytes)
    model = _parse(data.tobytes())
    _absorb_external_data(model, files.arrays)
    return LoadedModel(model, files.digest, files.onnx)


def _check_size(size: int, limit: int) -> None:
    if size == 0:
        raise LoadError("the model file is empty", reason="empty", field="model")
    if size > limit:
        hint = (
            "store the weights as external data: onnx.save(model, path, save_as_external_data=True)"
            if limit == MAX_MODEL_BYTES
            else "raise the size limit"
        )
        raise LoadError(
            f"the model has {size} bytes, the limit is {limit}",
            reason="too_large",
            field="model",
            hint=hint,
        )


def _parse(data: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        if not is_foreign(data) and _is_cut_short(data):
            raise LoadError(
                f"the model is truncated: it ends inside a field, after {len(data)} bytes",
                reason="truncated",
                field="model",
            ) from error
        raise refusal_of(data) from error
    if not model.HasField("graph") or not model.ir_version:
        raise refusal_of(data)
    if not model.graph.output:
        raise LoadError("the model has no output", reason="no_output", field="model")
    check_texts(model)
    _check_opsets(model)
    sort_nodes(model)
    return model


def _check_opsets(model: onnx.ModelProto) -> None:
    """Raise LoadError for a version that ONNX's own library cannot hold."""
    functions = (opset for function in model.functions for opset in function.opset_import)
    for opset in (*model.opset_import, *functions):
        if not 0 <= opset.version < 1 << 31:
            raise LoadError(
                f"the opset of {opset.domain or 'ai.onnx'!r} has the version {opset.version}",
                reason="opset",
                field="model",
                hint="export the model again, for an opset that ONNX has",
            )


def _is_cut_short(data: bytes) -> bool:
    """True if `data` starts as a ModelProto does and its last top-level field goes on past the
    end.
    """
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position, len(data))
        number, wire = tag >> 3, tag & 7
        if number not in _MODEL_FIELDS or wire not in (0, 2):
            return False
        value, position = read_varint(data, position, len(data))
        position += value if wire == 2 else 0
    return position > len(data)


_MODEL_FIELDS = frozenset(onnx.ModelProto.DESCRIPTOR.fields_by_number)


def _absorb_external_data(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> None:
    """Put the data that other files hold into the model; raises LoadError."""
    total = 0
    for tensor in _tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        data = _data_of(tensor, arrays)
        total += len(data)
        if total > MAX_DATA_BYTES:
            raise LoadError(
                f"the external data exceeds {MAX_DATA_BYTES} bytes",
                reason="too_large",
                field="model",
            )
        content = data.tobytes()
        release_pages(data)
        tensor.raw_data = content
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.ClearField("external_data")


def _data_of(tensor: onnx.TensorProto, arrays: Mapping[str, Array]) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        data = arrays[checked_name(entries.get("location", ""))]
        start = int(entries.get("offset") or 0)
        size = int(entries.get("length") or len(data) - start)
        if not 0 <= start <= start + size <= len(data):
            raise ValueError(f"bytes {start} to {start + size} are not in a file of {len(data)}")
    except (DeclarationError, KeyError, ValueError) as error:
        raise LoadError(
            f"the external data of {tensor.name!r} cannot be read: {summary(error)}",
            reason="external_data",
            field="model",
            node=tensor.name or None,
            hint="export the model again, or fetch its data again: the two do not belong together",
        ) from error
    return data[start : start + size]


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            yield from _graph_tensors(graph)


def _digest_of(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_DIGEST_CHUNK):
            digest.update(chunk)
    return digest.digest()
