"""Tokenizers of GGUF files, beside llama.cpp's algorithms written out."""

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
from tokenizers import Tokenizer

from compiler.ir.decoders.text_files import SETTINGS, TOKENIZER, TextFiles
from compiler.ir.gguf.file import read_gguf
from compiler.ir.gguf.splits import SPLITS
from compiler.ir.gguf.tokenizer import text_files
from tests.support.models import gguf_files

_S = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "llama-bpe": [_S + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST],
    "qwen2": [_S + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
}
"""As llama.cpp has them: each splits the pieces of the one before into matches and the rest."""
TEXTS = [
    "",
    "Hello world, I've told him: it'LL cost 12345.67!",
    "def f(x):\n\treturn x  **  2   # \u03bb\r\n\r\n",
    "   leading, \u00a0 non-breaking and trailing   ",
    "\u4f60\u597d\uff0c\u4e16\u754c \u043f\u0440\u0438\u0432\u0435\u0442 \u0c05\u0c06",
    "\U0001f680\U0001f9d1\u200d\U0001f52c caf\u00e9 \u00bd \u2167",
    "thethe the  the\n the",
    "<s>the<|x|>the</s>",
]
MERGES = ["t h", "th e", "Ġ the", "Ġ Ġ", "1 2", "12 3", "l l", "' ll", "h e", "o Ġ", "Ġ t"]


@cache
def letters() -> dict[int, str]:
    """GPT-2's letter of every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def of_bytes(**entries: Any) -> dict[str, Any]:
    """A file's metadata with a tokenizer as GPT-2's."""
    merged = [merge.replace(" ", "") for merge in MERGES]
    # The last one is a token that no merges make.
    tokens = [*letters().values(), *merged, "Hello", "<s>", "</s>", "<|x|>"]
    kinds = [1] * (len(tokens) - 3) + [3, 3, 4]
    return metadata_of(
        model="gpt2",
        pre="gpt-2",
        tokens=tokens,
        merges=MERGES,
        token_type=kinds,
        bos_token_id=tokens.index("<s>"),
        eos_token_id=tokens.index("</s>"),
        **entries,
    )


def of_pieces(**entries: Any) -> dict[str, Any]:
    """A file's metadata with a tokenizer as sentencepiece's."""
    runs = ["▁" * count for count in (2, 4, 8, 5, 6, 7, 3)]
    joined = ["th", "the", "▁the", "▁t", "he", "ll", "aa", "▁a", "café", "ca", "fé"]
    characters = ["▁", *sorted(set("".join(joined)) - {"▁"})]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    scores = [0.0] * len(tokens) + [-1e9] * len(runs)
    scores += [-float(rank) for rank in range(len(joined) + len(characters))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(scores) - 259)
    tokens += [*runs, *joined, *characters]
    special_tokens = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **entries}
    return metadata_of(
        model="llama", tokens=tokens, scores=scores, token_type=kinds, **special_tokens
    )


def metadata_of(**entries: Any) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in entries.items()}


def read(folder: Path, metadata: dict[str, Any]) -> TextFiles:
    path = folder / "words.gguf"
    gguf_files.write(path, {}, metadata)
    return text_files(read_gguf(path))


def tokenizer(folder: Path, metadata: dict[str, Any]) -> Any:
    texts = read(folder, metadata)
    assert not texts.left_out
    return Tokenizer.from_str(json.dumps(texts.documents[TOKENIZER]))


def pieces(text: str, patterns: list[str]) -> list[str]:
    """A text split by one expression after the other."""
    parts = [text]
    for pattern in patterns:
        split = []
        for piece in parts:
            end = 0
            for match in regex.finditer(pattern, piece):
                split += [piece[end : match.start()], match.group()]
                end = match.end()
            split.append(piece[end:])
        parts = [piece for piece in split if piece]
    return parts


def join_pieces(parts: list[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Joins the neighbours of the least rank, the first of equals, as long as there are any."""
    while True:
        ranks = [(rank(*pair), i) for i, pair in enumerate(pairwise(parts))]
        known = [(one, i) for one, i in ranks if one is not None]
        if not known:
            return parts
        i = min(known)[1]
        parts[i : i + 2] = ["".join(parts[i : i + 2])]


def special(text: str, tokens: list[str]) -> list[str]:
    """The text between tokens that stand for themselves, and these."""
    return [part for part in regex.split(f"({'|'.join(map(regex.escape, tokens))})", text) if part]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("text", TEXTS)
def test_bytes_are_merged_as_llama_cpp_merges_them(tmp_path: Path, name: str, text: str) -> None:
    metadata = of_bytes() | metadata_of(pre=name)
    tokens = metadata["tokenizer.ggml.tokens"]
    ranks = {tuple(merge.split(" ")): float(rank) for rank, merge in enumerate(MERGES)}
    want: list[str] = []
    for part in special(text, tokens[-3:]):
        if part in tokens[-3:]:
            want.append(part)
            continue
        for piece in pieces(part, PATTERNS[name]):
            written = [letters()[byte] for byte in piece.encode()]
            is_token = name == "llama-bpe" and "".join(written) in tokens
            merged = (
                ["".join(written)] if is_token else join_pieces(written, lambda *p: ranks.get(p))
            )
            want += merged
    coder = tokenizer(tmp_path, metadata)
    got = coder.encode(text, add_special_tokens=False)
    assert got.ids == [tokens.index(token) for token in want]
    assert coder.decode(got.ids, skip_special_tokens=False) == text
    assert ("Hello" in got.tokens) == (name == "llama-bpe" and "Hello" in text)


def test_every_split_is_one_of_these() -> None:
    assert {SPLITS[name] for name in PATTERNS} == set(SPLITS.values())


@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("text", [*TEXTS, *(" " * count + "the" for count in range(2, 40))])
def test_pieces_are_joined_as_sentencepiece_joins_them(
    tmp_path: Path, text: str, spaced: bool
) -> None:
    metadata = of_pieces(add_space_prefix=spaced)
    tokens = metadata["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens[259:], metadata["tokenizer.ggml.scores"][259:], strict=True))
    want: list[str] = []
    for part in special(text, tokens[:3]):
        if part in tokens[:3]:
            want.append(part)
            continue
        written = [*("▁" if spaced else ""), *part.replace(" ", "▁")]
        for piece in join_pieces(
            written, lambda *p: -scores[a] if (a := "".join(p)) in scores else None
        ):
            want += [piece] if piece in scores else [f"<0x{byte:02X}>" for byte in piece.encode()]
    coder = tokenizer(tmp_path, metadata)
    got = coder.encode(text, add_special_tokens=False)
    assert [tokens[token] for token in got.ids] == want
    if "<s>" not in text:
        assert coder.decode(got.ids) == text


def test_characters_are_composed_where_the_model_was_trained_so(tmp_path: Path) -> None:
    decomposed = "cafe\u0301"
    for name, composed in (("qwen2", True), ("smollm", False)):
        coder = tokenizer(tmp_path, of_bytes() | metadata_of(pre=name))
        assert (coder.decode(coder.encode(decomposed).ids) == "caf\u00e9") == composed


@pytest.mark.parametrize(
    ("metadata", "around"),
    [
        (of_bytes(), (False, False)),
        (of_bytes() | metadata_of(pre="llama-bpe"), (True, False)),
        (of_bytes(add_bos_token=True, add_eos_token=True), (True, True)),
        (of_bytes(add_bos_token=False) | metadata_of(pre="llama-bpe"), (False, False)),
        (of_pieces(), (True, False)),
        (of_pieces(add_bos_token=False, add_eos_token=True), (False, True)),
    ],
)
def test_what_a_text_begins_and_ends_with(
    tmp_path: Path, metadata: dict[str, Any], around: tuple[bool, bool]
) -> None:
    tokens = tokenizer(tmp_path, metadata).encode("the").tokens
    assert (tokens[0] == "<s>", tokens[-1] == "</s>") == around


def test_the_settings(tmp_path: Path) -> None:
    metadata = of_bytes(eot_token_id=7, eom_token_id=9999)
    texts = read(tmp_path, metadata | {"tokenizer.chat_template": "{{ messages }}"})
    ends = [7, metadata["tokenizer.ggml.eos_token_id"]]
    assert texts.documents[SETTINGS] == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "eos_token_id": ends,
        "chat_template": "{{ messages }}",
    }


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (metadata_of(tokens=["a"]), "the file states no tokenizer"),
        (of_bytes() | metadata_of(model="rwkv"), "tokenizers of the kind 'rwkv' are not known"),
        (of_bytes() | metadata_of(pre="tekken"), "the pre-tokenizer 'tekken' is not known"),
        (of_bytes() | metadata_of(pre=3), "the pre-tokenizer '3' is not known"),
        (of_bytes() | metadata_of(merges=["t h", "q q"]), "the merge 'q q' makes no token"),
        (of_bytes() | metadata_of(merges=["th"]), "the merge 'th' makes no token"),
        (of_bytes() | metadata_of(merges="t h"), "tokenizer.ggml.merges must be a list of strings"),
        (of_bytes() | metadata_of(tokens=["a", "a"]), "two tokens have the same text"),
        (of_bytes() | metadata_of(tokens=[1, 2]), "tokenizer.ggml.tokens must be a list"),
        (
            of_bytes() | metadata_of(token_type=[1, 2]),
            "token_type does not have one number for each",
        ),
        (of_pieces() | metadata_of(scores=[1.0]), "scores does not have one number for each token"),
        (of_pieces() | metadata_of(scores=[0.0] * 500), "scores does not have one number"),
    ],
)
def test_what_gets_no_tokenizer(tmp_path: Path, metadata: dict[str, Any], reason: str) -> None:
    texts = read(tmp_path, metadata)
    assert texts.documents.keys() == {SETTINGS}
    assert reason in texts.left_out[TOKENIZER]


@pytest.mark.parametrize("tied", [("th", "he"), ("\u2581" * 3, "aa")])
def test_pieces_of_one_score_that_are_no_runs(tmp_path: Path, tied: tuple[str, str]) -> None:
    metadata = of_pieces()
    tokens, scores = (metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores"))
    for text in tied:
        scores[tokens.index(text)] = -1e9
    assert read(tmp_path, metadata).left_out == {TOKENIZER: "pieces have the same score"}


def test_a_file_without_pre_tokenizer(tmp_path: Path) -> None:
    metadata = of_bytes()
    del metadata["tokenizer.ggml.pre"]
    assert read(tmp_path, metadata).left_out[TOKENIZER] == "the file states no pre-tokenizer"
