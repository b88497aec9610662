"""A language model as Hugging Face's libraries save it: which files of a folder are the model, and
the one tar that they are sent and identified as.
"""

import hashlib
import json
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from relaxd.errors import DeclarationError

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
TOKENIZER, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
GENERATION = "generation_config.json"
_BESIDE = (TOKENIZER, SETTINGS, TEMPLATE, GENERATION)
_TENSORS, _PICKLES = ".safetensors", (".bin", ".pt", ".pth", ".ckpt")
_SUFFIXES = (".tar", ".tar.gz", ".tgz")
MOST_INDEX_BYTES = 4 << 20
_PIECE = 1 << 20
_BLOCK, _RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE


def choose_files(names: Collection[str], index: bytes | None) -> list[str]:
    """The names of the model's own files among those of a folder, sorted; index: what the file
    `INDEX` holds. Raises DeclarationError for a folder that lacks one.
    """
    if CONFIG not in names:
        raise _refused(
            f"the folder has no {CONFIG}",
            "give the folder that save_pretrained of transformers writes, or a tar of it",
        )
    weights = _shards(index) if index is not None else _complete_weights(names)
    missing = sorted(weights - {*names})
    if missing:
        raise _refused(
            f"{INDEX} names {missing[0]!r}, which the folder lacks", "fetch the folder again"
        )
    beside = {CONFIG, *_BESIDE, *([INDEX] if index is not None else [])}
    return sorted(beside & {*names} | weights)


def _shards(index: bytes) -> set[str]:
    try:
        table = json.loads(index)["weight_map"]
        shards = {*table.values()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(f"{INDEX} has no weight_map", "fetch the folder again") from error
    for name in shards:
        if not isinstance(name, str) or "/" in name or not name.endswith(_TENSORS):
            raise _refused(f"{INDEX} names {name!r}", f"keep weights in files *{_TENSORS}")
    return shards


def _complete_weights(names: Collection[str]) -> set[str]:
    weights = {name for name in names if name.endswith(_TENSORS)}
    if WEIGHTS in weights:
        return {WEIGHTS}
    if len(weights) == 1:
        return weights
    if weights:
        raise _refused(
            f"the folder has {len(weights)} files *{_TENSORS} and no {INDEX}",
            "save the model again with save_pretrained",
        )
    pickled = sorted(name for name in names if name.endswith(_PICKLES))
    if pickled:
        raise _refused(
            f"{pickled[0]!r} is a pickle, which runs code when it is loaded",
            "save the weights as safetensors: model.save_pretrained(folder)",
        )
    raise _refused(f"the folder has no {WEIGHTS}", "add the weights as safetensors")


def files_of(folder: Path) -> dict[str, Path]:
    """The model's own files in a folder, by name in order; raises DeclarationError."""
    names = {entry.name for entry in folder.iterdir() if entry.is_file()}
    index = None
    if INDEX in names:
        with (folder / INDEX).open("rb") as file:
            index = file.read(MOST_INDEX_BYTES)
    return {name: folder / name for name in choose_files(names, index)}


def require_model(path: Path) -> None:
    """Raises DeclarationError where there is neither a file nor a folder."""
    if not path.is_file() and not path.is_dir():
        raise DeclarationError(
            f"there is no file {path}",
            field="model",
            hint="give the path of a file, or of a language model's folder",
        )


def model_name(path: Path) -> str:
    """Choose the name of the model in a file or a folder."""
    if path.is_dir():
        return path.resolve().name
    suffix = next((one for one in _SUFFIXES if path.name.lower().endswith(one)), None)
    return path.name[: -len(suffix)] if suffix else path.stem


def digest_of(sizes: Mapping[str, int], read: Callable[[str], Iterator[bytes]]) -> bytes:
    """The sha256 of the tar of the files; read: the pieces of one."""
    digest = hashlib.sha256()
    for name in sorted(sizes):
        digest.update(header(name, sizes[name]))
        for piece in read(name):
            digest.update(piece)
        digest.update(padding(sizes[name]))
    digest.update(ending(sizes))
    return digest.digest()


def digest_of_folder(folder: Path) -> str:
    """`sha256:...` of the tar; raises DeclarationError, OSError."""
    files = files_of(folder)

    def pieces(name: str) -> Iterator[bytes]:
        with files[name].open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    sizes = {name: path.stat().st_size for name, path in files.items()}
    return f"sha256:{digest_of(sizes, pieces).hex()}"


def header(name: str, size: int) -> bytes:
    """The header of a file in the tar, without owner and time."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """The zeros after a file of the size."""
    return bytes(-size % _BLOCK)


def ending(sizes: Mapping[str, int]) -> bytes:
    """The zeros after the last of the files."""
    total = sum(len(header(name, size)) + size + -size % _BLOCK for name, size in sizes.items())
    return bytes(2 * _BLOCK + -(total + 2 * _BLOCK) % _RECORD)


def _refused(message: str, hint: str) -> DeclarationError:
    return DeclarationError(message, field="model", hint=hint)
