"""The tokenizer, the template of conversations and the ends of answers of a folder."""

from typing import Any

from compiler.errors import LoadError
from compiler.ir.decoders.text_files import Document, TextFiles
from compiler.ir.folder.archive import Files
from compiler.ir.folder.config import document
from relaxd.contract.model_folder import GENERATION, SETTINGS, TEMPLATE, TOKENIZER

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
    texts = {SETTINGS: settings, GENERATION: generation}
    if TOKENIZER not in files.arrays:
        reason = f"the folder has none; {_SAVE}"
        return TextFiles(texts, {TOKENIZER: reason})
    texts[TOKENIZER] = document(TOKENIZER, files.arrays[TOKENIZER], _MOST_BYTES)
    return TextFiles(texts)


_SAVE = "AutoTokenizer.from_pretrained(...).save_pretrained(folder) of transformers writes one"


def _document(files: Files, name: str) -> dict[str, Any]:
    return document(name, files.arrays[name]) if name in files.arrays else {}


def _text(files: Files, name: str) -> str:
    try:
        return files.arrays[name].tobytes().decode()
    except UnicodeDecodeError as error:
        raise LoadError(f"{name} is not valid UTF-8", reason="folder", field="model") from error
