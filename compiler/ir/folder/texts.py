"""The tokenizer and its settings, and what else a folder states of texts."""

from typing import Any

from compiler.errors import LoadError
from compiler.ir.decoders.text_files import Document, TextFiles
from compiler.ir.folder.archive import Files
from compiler.ir.folder.config import document
from relaxd.contract.model_folder import (
    GENERATION,
    LENGTHS,
    PROMPTS,
    SETTINGS,
    TEMPLATE,
    TOKENIZER,
)

_MOST_BYTES = 256 << 20
_ENDS, _TEXT = "eos_token_id", "chat_template"


def text_files(files: Files, config: Document) -> TextFiles:
    """The tokenizer, with what else names the template and the ends of answers; raises LoadError
    for files that are no JSON.
    """
    settings = _document(files, SETTINGS)
    if TEMPLATE in files.arrays:
        settings[_TEXT] = _text(files, TEMPLATE)
    ends = {_ENDS: config[_ENDS]} if config.get(_ENDS) is not None else {}
    generation = {**ends, **_document(files, GENERATION)}
    return _with_tokenizer(files, {SETTINGS: settings, GENERATION: generation})


def encoder_texts(files: Files) -> TextFiles:
    """The tokenizer, its settings, and prompts and lengths of sentence-transformers; raises
    LoadError for files that are no JSON.
    """
    names = (SETTINGS, PROMPTS, LENGTHS)
    texts = {name: _document(files, name) for name in names if name in files.arrays}
    return _with_tokenizer(files, texts)


def _with_tokenizer(files: Files, texts: dict[str, Document]) -> TextFiles:
    if TOKENIZER not in files.arrays:
        reason = f"the folder has none; {_SAVE}"
        return TextFiles(texts, {TOKENIZER: reason})
    tokenizer = document(TOKENIZER, files.arrays[TOKENIZER], _MOST_BYTES)
    return TextFiles({**texts, TOKENIZER: tokenizer})


_SAVE = "AutoTokenizer.from_pretrained(...).save_pretrained(folder) of transformers writes one"


def _document(files: Files, name: str) -> dict[str, Any]:
    return document(name, files.arrays[name]) if name in files.arrays else {}


def _text(files: Files, name: str) -> str:
    try:
        return files.arrays[name].tobytes().decode()
    except UnicodeDecodeError as error:
        raise LoadError(f"{name} is not valid UTF-8", reason="folder", field="model") from error
