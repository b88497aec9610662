"""The fenced blocks of the documentation, and what comments before them say about running them.

A comment `<!-- snippet: KIND TEXT -->` before a block is invisible to readers. KIND is one of:

- `skip`: it is not run; TEXT says why.
- `elsewhere`: the tests in the file TEXT run it.
- `from`: an excerpt of the file TEXT.
- `before`: TEXT is shell that runs first.
- `heavy`: it runs only if RELAXD_DOCS is `all`; TEXT says what it takes.
- `fails`: the last command ends with the exit code TEXT.

With `snippets` in place of `snippet`, the comment holds for all of the page's shell and Python.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = ("sh", "console")

FENCE = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)
_COMMENT = re.compile(r"<!-- (snippets?): (\w+)\s*(.*?)\s*-->", re.DOTALL)
_NUMBER = re.compile(r"[0-9a-f]{12,}|\d+(?:\\?[.,]\d+)*(?:e\\?-?\d+)?")
_UNIT = re.compile(r"[KMG]iB")
_BEFORE = re.compile(r"(?:<!-- snippet: (?:(?!-->).)*-->\s*)+\Z", re.DOTALL)


class Kind(StrEnum):
    """The text of a comment."""

    SKIP = "skip"
    ELSEWHERE = "elsewhere"
    FROM = "from"
    BEFORE = "before"
    HEAVY = "heavy"
    FAILS = "fails"


@dataclass(frozen=True)
class Command:
    """A line of shell, continued lines included, and the lines that it is said to print."""

    line: str
    prints: tuple[str, ...] = ()

    def missing_lines(self, message: str) -> Iterator[str]:
        """Its lines that `message` does not have in that order; numbers and units of bytes may
        differ, `...` stands for anything.
        """
        lines = iter(message.splitlines())
        for line in self.prints:
            text = re.sub(r"\s+", " ", line.strip())
            if text in ("", "..."):
                continue
            pattern = _NUMBER.sub("[0-9a-f.,e-]+", re.escape(text).replace(r"\.\.\.", ".*"))
            pattern = _UNIT.sub("[KMG]iB", pattern.replace(r"\ ", r"\s+"))
            if not any(re.search(pattern, result) for result in lines):
                yield line


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `info` is what follows the language."""

    page: Path
    line: int
    language: str
    info: str
    body: str
    marks: dict[Kind, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def commands(self) -> list[Command]:
        """Each line of a script; of a console each line behind a prompt, with its output."""
        prompt = "" if self.language == "sh" else "$ "
        result: list[Command] = []
        continued = False
        for line in self.body.splitlines():
            if continued:
                last = result.pop()
                result.append(Command(f"{last.line}\n{line}"))
            elif line.startswith(prompt):
                result.append(Command(line.removeprefix(prompt)))
            elif result:
                result[-1] = Command(result[-1].line, (*result[-1].prints, line))
            continued = line.endswith("\\")
        return result


def blocks_of(page: Path) -> Iterator[Block]:
    """The page's blocks in order."""
    text = page.read_text(encoding="utf-8")
    for_all = {Kind(kind): about for often, kind, about in _COMMENT.findall(text) if often[7:]}
    for result in FENCE.finditer(text):
        indent, info, body = result.groups()
        language, _, rest = info.partition(" ")
        before = _BEFORE.search(text, 0, result.start())
        marks = for_all if language in (*SHELL, "python") else {}
        if before:
            own = _COMMENT.findall(before[0])
            marks = marks | {Kind(kind): about for _, kind, about in own}
        plain = "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        index = text.count("\n", 0, result.start()) + 1
        yield Block(page, index, language, rest, plain, marks)
