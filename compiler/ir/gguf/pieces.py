"""The merges of a sentencepiece tokenizer, which a GGUF file states as scores."""

from collections import defaultdict
from collections.abc import Iterator

from compiler.ir.gguf.vocabulary import Kind, LeftOut, Vocabulary

SPACE = "▁"
_JOINED = (Kind.NORMAL, Kind.UNUSED)
_LONGEST = 512
"""Characters of a piece: all ways to cut it are tried."""


def merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Which two pieces are joined, the first before the others; raises LeftOut.

    sentencepiece joins the neighbours whose joint piece has the greatest score, so every way to
    make a piece of two others has the rank of that piece.
    """
    numbers = vocabulary.numbers
    known = {text for text, number in numbers.items() if vocabulary.kinds[number] in _JOINED}
    if any(len(text) > _LONGEST for text in known):
        raise LeftOut(f"a piece has more than {_LONGEST} characters")
    equal: dict[float, list[str]] = defaultdict(list)
    for text in numbers:
        if len(text) > 1 and text in known:
            equal[vocabulary.scores[numbers[text]]].append(text)
    joint = (text for score in sorted(equal, reverse=True) for text in _ordered(equal[score]))
    return [pair for text in joint for pair in _cuts(text, numbers) if known >= set(pair)]


def _ordered(texts: list[str]) -> list[str]:
    """Pieces of one score, of which sentencepiece joins the first in a text: runs of a letter,
    such as spaces, are taken from the left as long as they may be.

    Doubling alone makes of any run its binary digits, the greatest first, and these are then
    joined from the left.
    """
    if len(texts) == 1:
        return texts
    lengths = sorted(map(len, texts))
    last = lengths[-1]
    runs = len(set("".join(texts))) == 1 and lengths == list(range(2, last + 1))
    if not runs or last & (last - 1):
        raise LeftOut("pieces have the same score")
    return sorted(texts, key=lambda text: (len(text).bit_count() > 1, _rank(len(text))))


def _rank(length: int) -> int:
    return length if length.bit_count() == 1 else -length


def _cuts(text: str, numbers: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Ways to make a piece of two, those of early pieces first."""
    cuts = [(text[:i], text[i:]) for i in range(1, len(text))]
    known = [cut for cut in cuts if cut[0] in numbers and cut[1] in numbers]
    yield from sorted(known, key=lambda cut: (numbers[cut[0]], numbers[cut[1]]))
