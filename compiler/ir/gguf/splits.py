"""How llama.cpp's pre-tokenizers split a text, by the name that a GGUF file gives them."""

from dataclasses import dataclass
from typing import Any

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_DIGIT = r"\p{N}"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"


def _words(digits: str) -> str:
    """The expression of Llama 3 and Qwen2, which differ in how many digits stay together."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_MARKS}|{_SPACES}"


@dataclass(frozen=True)
class Split:
    """patterns: each splits what the one before left in one piece; words: GPT-2's own expression
    splits the rest.

    ignores_merges: a piece that is a token is taken as it is, whatever the merges make of it;
    begins: a text begins with a token of its own, unless the file says otherwise;
    composed: characters are composed first (NFC).
    """

    patterns: tuple[str, ...] = ()
    words: bool = False
    ignores_merges: bool = False
    begins: bool = False
    composed: bool = False

    def steps(self) -> dict[str, Any]:
        """The pre-tokenizer of a tokenizer.json."""
        splits = [
            {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
            for one in self.patterns
        ]
        return {"type": "Sequence", "pretokenizers": [*splits, bytes_as_letters(self.words)]}


def bytes_as_letters(words: bool = False) -> dict[str, Any]:
    """The step that writes each byte as a letter, as the tokens of GPT-2 are written."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": words,
    }


_GPT2 = Split(words=True)
_LLAMA3 = Split((_words(r"\p{N}{1,3}"),), ignores_merges=True, begins=True)
_DIGITS = Split((_DIGIT,), words=True)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", _DIGIT)

SPLITS = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo"), _GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "minerva-7b"), _DIGITS),
    **dict.fromkeys(("qwen2", "megrez"), Split((_words(_DIGIT),), composed=True)),
    "deepseek-coder": Split(_DEEPSEEK_CODER),
}
