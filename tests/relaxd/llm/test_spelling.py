"""The bytes of single tokens."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from relaxd.llm.spelling import Spelling

TEXT = "Naïve: 東 \n\t😀 x\x00"


def of_bytes() -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(sorted(alphabet))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_fallback() -> Tokenizer:
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "N", "a", "x", ":"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    space: Any = decoders.Replace("▁", " ")
    tokenizer.decoder = decoders.Sequence([space, decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@pytest.mark.parametrize("make", [of_bytes, with_fallback])
def test_all_tokens_of_a_text_are_its_bytes(make: Any) -> None:
    tokenizer = make()
    tokenizer.add_special_tokens(["<|東|>"])
    spelling = Spelling(tokenizer)
    tokens = tokenizer.encode(TEXT).ids
    assert len(tokens) > len(TEXT)
    assert b"".join(map(spelling.spell, tokens)) == TEXT.encode()
    assert spelling.spell(tokenizer.token_to_id("<|東|>")) == "<|東|>".encode()
    assert spelling.spell(99_999) == b""


def test_metaspace_and_no_decoder() -> None:
    tokenizer = Tokenizer(models.BPE({"▁a": 0, "b": 1}, []))
    assert Spelling(tokenizer).spell(0) == "▁a".encode()
    tokenizer.decoder = decoders.Metaspace()
    assert Spelling(tokenizer).spell(0) == b" a"
