"""The rules, read from the tables of docs/glossary.md: the page is their only source."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TERMS = ("Term", "Meaning", "Not in text", "Not in names")
_WORDS = ("Rule", "Words")
_PAGES = ("Instead of", "Say")
_REFUSED = re.compile(r"`([^`]+)`( alone)?( in definitions)?")


@dataclass(frozen=True)
class Refusal:
    """A word or phrase that is refused, and what to say instead.

    words: in lower case; the last may end in `*`, which stands for any ending. alone: the words
    have to be the whole name. locals_too: variables of a function may not have that name either.
    """

    words: tuple[str, ...]
    instead: str
    alone: bool = False
    locals_too: bool = True

    @property
    def phrase(self) -> str:
        """The words as the glossary has them."""
        return " ".join(self.words)

    def covers(self, parts: Sequence[str], is_local: bool) -> bool:
        """Tell whether the refusal holds for a name of these parts, in which its words occur."""
        is_covered = not self.alone or len(parts) == len(self.words)
        return is_covered and (self.locals_too or not is_local)


@dataclass
class Phrases:
    """Refusals, found by their first word: a look-up for each word of a text."""

    refusals: list[Refusal] = field(default_factory=list)
    _by_word: dict[str, list[Refusal]] = field(default_factory=dict)
    _stems: set[int] = field(default_factory=set)

    def add(self, refusal: Refusal) -> None:
        """Add a refusal."""
        self.refusals.append(refusal)
        first = refusal.words[0]
        self._by_word.setdefault(first, []).append(refusal)
        if first.endswith("*"):
            self._stems.add(len(first) - 1)

    def find(self, words: Sequence[str]) -> Iterator[tuple[int, Refusal]]:
        """The index of the first word, and the refusal, of each match in a sequence of words."""
        for index, word in enumerate(words):
            keys = [word, *(f"{word[:size]}*" for size in self._stems)]
            for refusal in (one for key in keys for one in self._by_word.get(key, ())):
                part = words[index : index + len(refusal.words)]
                if _matches(part, refusal.words):
                    yield index, refusal


@dataclass
class Rules:
    """All rules: phrases refused in text, in names and in pages, and the words of other rules."""

    text: Phrases = field(default_factory=Phrases)
    names: Phrases = field(default_factory=Phrases)
    pages: Phrases = field(default_factory=Phrases)
    participles: frozenset[str] = frozenset()
    no_participles: frozenset[str] = frozenset()
    openings: frozenset[str] = frozenset()
    terms: frozenset[str] = frozenset()

    def is_participle(self, name: str) -> bool:
        """True if the name is one word, and a participle."""
        if name in self.no_participles or not name.isalpha():
            return False
        return name in self.participles or name.endswith("ed")


def read_rules(page: Path) -> Rules:
    """Read the rules of a glossary; raises ValueError where it has none, or an unknown rule."""
    rules = Rules()
    words: dict[str, frozenset[str]] = {}
    for header, cells in _rows(page.read_text(encoding="utf-8")):
        if header == _TERMS:
            term, _, text, names = cells
            for phrases, cell in ((rules.text, text), (rules.names, names)):
                for refusal in _refusals(cell, term):
                    phrases.add(refusal)
        elif header == _PAGES:
            for refusal in _refusals(cells[0], cells[1]):
                rules.pages.add(refusal)
        elif header == _WORDS:
            words[cells[0]] = frozenset(word for word, *_ in _REFUSED.findall(cells[1]))
    kinds = ("irregular participle", "no participle", "docstring opening", "term in names")
    if words.keys() != {*kinds} or not rules.text.refusals:
        raise ValueError(f"{page} has to have tables of terms, and the rules {', '.join(kinds)}")
    rules.participles, rules.no_participles, rules.openings, rules.terms = (
        words[kind] for kind in kinds
    )
    return rules


def _rows(text: str) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Every row of every table with the header of its table."""
    header: tuple[str, ...] = ()
    for line in text.splitlines():
        if not line.startswith("|"):
            header = ()
            continue
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if not header:
            header = cells
        elif not set(line) <= set("|-: "):
            yield header, cells


def _refusals(cell: str, instead: str) -> Iterator[Refusal]:
    for phrase, alone, in_definitions in _REFUSED.findall(cell):
        words = tuple(re.split(r"[\s_]+", phrase.lower()))
        yield Refusal(words, instead, bool(alone), not in_definitions)


def _matches(words: Sequence[str], pattern: Sequence[str]) -> bool:
    if len(words) != len(pattern):
        return False
    return all(
        word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted
        for word, wanted in zip(words, pattern, strict=True)
    )
