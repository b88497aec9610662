"""A model as Hugging Face's libraries save it: which files of a folder are the model."""

import json
import re
from collections.abc import Collection
from pathlib import Path

from relaxd.errors import DeclarationError

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
TOKENIZER, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
GENERATION = "generation_config.json"
MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
LENGTHS = "sentence_bert_config.json"
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""An adapter of PEFT's, which is merged into the model beside it."""
_BESIDE = (TOKENIZER, SETTINGS, TEMPLATE, GENERATION, MODULES, PROMPTS, LENGTHS)
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
"""The names of modules' folders, as in `1_Pooling`."""
_TENSORS, _PICKLES = ".safetensors", (".bin", ".pt", ".pth", ".ckpt")
_OTHERS = {
    "saved_model.pb": (
        "a SavedModel of TensorFlow",
        "convert it: pip install tf2onnx tensorflow, then python -m tf2onnx.convert "
        "--saved-model FOLDER --output model.onnx",
    ),
    "Manifest.json": (
        "a package of Core ML",
        "nothing converts Core ML back: export the model that it was made from, from PyTorch by "
        "torch.onnx.export(model.eval(), inputs, 'model.onnx', dynamo=True)",
    ),
}
"""Folders of other formats, by a file that they have."""
_SUFFIXES = (".tar", ".tar.gz", ".tgz")
MOST_LIST_BYTES = 4 << 20


def has_weights(names: Collection[str]) -> bool:
    """True if a folder of these files has a model's config and weights."""
    return CONFIG in names and any(name.endswith(_TENSORS) for name in names)


def choose_files(names: Collection[str], index: bytes | None) -> list[str]:
    """The names of the model's own files among those of a folder, sorted; index: what the file
    `INDEX` holds. Raises DeclarationError for a folder that lacks one.
    """
    for mark, (what, hint) in _OTHERS.items():
        if mark in names:
            raise _refused(f"the folder is {what}", hint)
    if CONFIG not in names and MODULES in names:
        raise _refused(
            f"the folder has {MODULES}, and no {CONFIG} beside it",
            "save it again: SentenceTransformer(FOLDER).save_pretrained(NEW) of "
            "sentence-transformers 3 or later puts the encoder into the folder itself",
        )
    if CONFIG not in names and ADAPTER in names:
        raise _refused(
            "the folder is an adapter, without the model that it changes",
            f"put {ADAPTER} and {ADAPTER_WEIGHTS} into the model's folder, which merges them; or "
            "compile the model with lora_rank, and load the adapter while it runs",
        )
    if CONFIG not in names:
        raise _refused(
            f"the folder has no {CONFIG} and no .onnx file",
            "give the folder that save_pretrained of transformers writes, or an ONNX model with "
            "its data, or a tar of either",
        )
    weights = _shards(index) if index is not None else _complete_weights(names)
    if ADAPTER in names:
        weights |= {ADAPTER, ADAPTER_WEIGHTS}
    missing = sorted(weights - {*names})
    if missing == [ADAPTER_WEIGHTS]:
        raise _refused(f"the folder has {ADAPTER} alone", f"add {ADAPTER_WEIGHTS}, or drop it")
    if missing:
        raise _refused(
            f"{INDEX} names {missing[0]!r}, which the folder lacks", "fetch the folder again"
        )
    beside = {CONFIG, *_BESIDE, *([INDEX] if index is not None else [])}
    return sorted(beside & {*names} | weights)


def module_files(modules: bytes) -> list[str]:
    """The files that modules of sentence-transformers may have, sorted; modules: what the file
    `MODULES` holds. Raises DeclarationError for one that is malformed or leads out of the folder.
    """
    try:
        paths = {entry["path"] for entry in json.loads(modules)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _refused(f"{MODULES} lists no modules", "fetch the folder again") from error
    for path in paths - {""}:
        if not isinstance(path, str) or not _MODULE.fullmatch(path):
            raise _refused(
                f"{MODULES} names the folder {str(path)[:60]!r}",
                "keep modules in folders beside it",
            )
    return sorted(f"{path}/{name}" for path in paths - {""} for name in (CONFIG, WEIGHTS))


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
    weights = {name for name in names if name.endswith(_TENSORS)} - {ADAPTER_WEIGHTS}
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


def require_model(path: Path) -> None:
    """Raises DeclarationError where there is neither a file nor a folder."""
    if not path.is_file() and not path.is_dir():
        raise DeclarationError(
            f"there is no file {path}",
            field="model",
            hint="give the path of a file, or of a model's folder",
        )


def model_name(path: Path) -> str:
    """Choose the name of the model in a file or a folder."""
    if path.is_dir():
        return path.resolve().name
    suffix = next((one for one in _SUFFIXES if path.name.lower().endswith(one)), None)
    return path.name[: -len(suffix)] if suffix else path.stem


def _refused(message: str, hint: str) -> DeclarationError:
    return DeclarationError(message, field="model", hint=hint)
