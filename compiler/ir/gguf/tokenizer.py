"""The tokenizer, the template of conversations and the ends of answers that a GGUF file states, as
the files that Hugging Face's libraries read.
"""

from collections.abc import Mapping
from typing import Any

from compiler.ir.decoders.text_files import SETTINGS, TOKENIZER, Document, TextFiles
from compiler.ir.gguf import pieces
from compiler.ir.gguf.file import Gguf
from compiler.ir.gguf.splits import SPLITS, bytes_as_letters
from compiler.ir.gguf.vocabulary import Kind, LeftOut, Vocabulary

_ENDS = ("eos", "eot", "eom")
_ADDED = (Kind.UNKNOWN, Kind.CONTROL, Kind.OWN)


def text_files(file: Gguf) -> TextFiles:
    """The files; tokenizer.json is left out where the metadata state a tokenizer that is not known,
    or contradict themselves.
    """
    vocabulary = Vocabulary(file)
    settings = {SETTINGS: _settings(vocabulary, file.metadata.get("tokenizer.chat_template"))}
    try:
        return TextFiles({TOKENIZER: _tokenizer(vocabulary), **settings})
    except LeftOut as reason:
        return TextFiles(settings, {TOKENIZER: str(reason)})


def _settings(vocabulary: Vocabulary, template: Any) -> Document:
    settings: Document = {
        f"{name}_token": token for name in ("bos", "eos") if (token := vocabulary.token(name))
    }
    ends = {
        vocabulary.entry(f"{name}_token_id") for name in _ENDS if vocabulary.token(name) is not None
    }
    settings["eos_token_id"] = sorted(ends)
    if isinstance(template, str):
        settings["chat_template"] = template
    return settings


def _tokenizer(vocabulary: Vocabulary) -> Document:
    """tokenizer.json; raises LeftOut."""
    kind = vocabulary.entry("model")
    if kind == "gpt2":
        model = _of_bytes(vocabulary)
    elif kind == "llama":
        model = _of_pieces(vocabulary)
    elif kind is None:
        raise LeftOut("the file states no tokenizer")
    else:
        raise LeftOut(f"tokenizers of the kind {str(kind)[:40]!r} are not known")
    added = [
        _added(text, number, vocabulary.kinds[number])
        for text, number in vocabulary.numbers.items()
        if vocabulary.kinds[number] in _ADDED
    ]
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return head | model


def _added(text: str, number: int, kind: int) -> Document:
    """A token that stands for itself wherever its text is."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": text, **plain, "special": kind != Kind.OWN}


def _of_bytes(vocabulary: Vocabulary) -> Document:
    """GPT-2's kind: bytes are merged within the pieces of a pre-tokenizer."""
    name = vocabulary.entry("pre")
    split = SPLITS.get(name) if isinstance(name, str) else None
    if name is None:
        raise LeftOut("the file states no pre-tokenizer")
    if split is None:
        raise LeftOut(f"the pre-tokenizer {str(name)[:40]!r} is not known")
    merges = [_merge(text, vocabulary.numbers) for text in vocabulary.texts("merges")]
    return {
        "normalizer": {"type": "NFC"} if split.composed else None,
        "pre_tokenizer": split.steps(),
        "post_processor": _around(vocabulary, split.begins),
        "decoder": bytes_as_letters(),
        "model": _model(vocabulary, merges, ignore_merges=split.ignores_merges),
    }


def _merge(text: str, numbers: Mapping[str, int]) -> tuple[str, str]:
    # The first part may itself begin with a space.
    space = text.find(" ", 1)
    first, second = text[:space], text[space + 1 :]
    if space < 0 or any(part not in numbers for part in (first, second, first + second)):
        raise LeftOut(f"the merge {text[:40]!r} makes no token")
    return first, second


def _of_pieces(vocabulary: Vocabulary) -> Document:
    """sentencepiece's kind: a space is a letter, and what no piece has is written in bytes."""
    spaced = vocabulary.flag("add_space_prefix", True)
    to_letter = {"type": "Replace", "pattern": {"String": " "}, "content": pieces.SPACE}
    to_space = {"type": "Replace", "pattern": {"String": pieces.SPACE}, "content": " "}
    before = [{"type": "Prepend", "prepend": pieces.SPACE}] if spaced else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if spaced else []
    decoders = [to_space, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]
    merges = pieces.merges(vocabulary)
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, to_letter]},
        "pre_tokenizer": None,
        "post_processor": _around(vocabulary, True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(
            vocabulary, merges, unk_token=vocabulary.token("unknown"), byte_fallback=True
        ),
    }


def _model(vocabulary: Vocabulary, merges: list[tuple[str, str]], **settings: Any) -> Document:
    plain = {"type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False}
    ends = {"continuing_subword_prefix": None, "end_of_word_suffix": None}
    # Characters that no token has are one unknown token each, as in sentencepiece.
    rest = {"fuse_unk": True, "ignore_merges": False}
    return plain | ends | rest | settings | {"vocab": vocabulary.numbers, "merges": merges}


def _around(vocabulary: Vocabulary, begins: bool) -> Document | None:
    """Adds the tokens around every text that the file states, None where there is none."""
    before = _special(vocabulary, "bos", begins)
    behind = _special(vocabulary, "eos", False)
    if not before and not behind:
        return None
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    marks = [{"SpecialToken": {"id": token, "type_id": 0}} for token in (*before, *behind)]
    first = len(before)
    single = [*marks[:first], *text, *marks[first:]]
    other = [{"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *other],
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary.numbers[token]], "tokens": [token]}
            for token in (*before, *behind)
        },
    }


def _special(vocabulary: Vocabulary, name: str, default: bool) -> list[str]:
    token = vocabulary.token(name)
    return [token] if token is not None and vocabulary.flag(f"add_{name}_token", default) else []
