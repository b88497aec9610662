"""Findings of the sources against the rules, and how much of it each folder may have."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from tools.language.glossary import Phrases, Rules
from tools.language.sources import Source, Text

Counts: TypeAlias = dict[str, dict[str, int]]
"""How many findings of each rule each folder has."""

_WORD = re.compile(r"[A-Za-z0-9]+(?:['_][A-Za-z0-9]+)*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


@dataclass(frozen=True)
class Finding:
    """A place in a file that breaks a rule."""

    path: Path
    line: int
    rule: str
    instead: str

    @property
    def folder(self) -> str:
        """The folder that the finding counts for."""
        return self.path.parent.as_posix()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.instead}"


@dataclass(frozen=True)
class Exemption:
    """Findings that are right where they are. path: of files, with `*`; rule: as a finding has it,
    with `*`.
    """

    path: str
    rule: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """True if the finding is one of those."""
        path = finding.path.as_posix()
        return fnmatchcase(path, self.path) and fnmatchcase(finding.rule, self.rule)


def find(source: Source, rules: Rules) -> Iterator[Finding]:
    """Every finding in a source, in no order."""
    for text in source.texts:
        yield from _in_text(source, text, rules.text, "text")
        if source.is_page:
            yield from _in_text(source, text, rules.pages, "page")
    for text in source.docstrings:
        opening = text.words.split(maxsplit=1)[:1]
        if opening and opening[0] in rules.openings:
            instead = "begin with a verb, or name the thing"
            yield Finding(source.path, text.line, f"docstring: {opening[0]}", instead)
    for name in source.names:
        if name.public_function and rules.is_participle(name.name):
            instead = f"{name.name!r} is no verb: name what the function does"
            yield Finding(source.path, name.line, "participle", instead)
        parts = [part.lower() for part in _PART.findall(name.name)]
        for _, refusal in rules.names.find(parts):
            if refusal.covers(parts, name.local) and name.name not in rules.terms:
                rule = f"name: {refusal.phrase}"
                yield Finding(source.path, name.line, rule, f"{name.name!r}: {refusal.instead}")


def _in_text(source: Source, text: Text, phrases: Phrases, kind: str) -> Iterator[Finding]:
    words = list(_WORD.finditer(text.words))
    for index, refusal in phrases.find([word[0].lower() for word in words]):
        line = text.line + text.words.count("\n", 0, words[index].start())
        yield Finding(source.path, line, f"{kind}: {refusal.phrase}", refusal.instead)


def count(findings: Iterable[Finding]) -> Counts:
    """The findings of each rule by folder, sorted."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for finding in findings:
        counts[finding.folder][finding.rule] += 1
    return {folder: dict(sorted(counts[folder].items())) for folder in sorted(counts)}


def beyond(counts: Counts, baseline: Counts) -> Iterator[tuple[str, str]]:
    """The folders and rules with more findings than the baseline has."""
    for folder, rules in counts.items():
        allowed = baseline.get(folder, {})
        yield from ((folder, rule) for rule, many in rules.items() if many > allowed.get(rule, 0))


def totals(counts: Counts) -> Mapping[str, int]:
    """The findings of each rule in all folders."""
    total: Counter[str] = Counter()
    for rules in counts.values():
        total.update(rules)
    return total
