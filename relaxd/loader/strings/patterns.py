"""Regular expressions of RE2, which ONNX Runtime matches, as Python's."""

import re
from dataclasses import dataclass, field
from typing import NoReturn

_SPACE = r"\t\n\f\r "
_PLAIN = frozenset("wWdDbBnrtfv")
_REPEAT = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}")


def compile_pattern(pattern: str, *, longest: bool = False) -> re.Pattern[str]:
    r"""The pattern that matches the same texts; raises ValueError for one that has no translation.

    Classes such as `\w` are of ASCII, `$` is the end of the text, and there is no group with a
    question mark but `(?:`. longest: it is for searches of the longest match: Python's first is
    that where one part alone, and no alternative, decides on the length.
    """
    if not isinstance(pattern, str):
        raise TypeError("a pattern is no string")
    translation = _Translation(pattern)
    try:
        compiled = re.compile(translation.text(), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern {pattern[:60]!r} cannot be read: {error}") from error
    if longest and translation.choices > 1:
        translation.refuse("several parts that decide on the length")
    return compiled


@dataclass
class _Translation:
    """choices: how many repetitions of no fixed count and alternatives the pattern has, of which
    the latter count twice.
    """

    pattern: str
    choices: int = 0
    in_class: bool = False
    pieces: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The pattern in Python's words."""
        position = 0
        while position < len(self.pattern):
            position += self._add(position)
        return "".join(self.pieces)

    def refuse(self, part: str) -> NoReturn:
        """Raise the error for a part that has no translation."""
        raise ValueError(f"the pattern {self.pattern[:60]!r} has {part}: write it otherwise")

    def _add(self, position: int) -> int:
        """Add the piece that begins there; its length in the pattern."""
        piece = self.pattern[position]
        if piece == "\\":
            piece = self.pattern[position : position + 2]
            self.pieces.append(self._escape(piece))
        elif self.in_class:
            if piece == "[":
                self.refuse("[ within a class")
            self.in_class = piece != "]"
            self.pieces.append(piece)
        elif piece == "[":
            starts = (one for one in ("[^]", "[]", "[^", "[") if self._begins(one, position))
            piece, self.in_class = next(starts), True
            self.pieces.append(piece.replace("]", "\\]"))
        elif match := _REPEAT.match(self.pattern, position):
            piece = match[0]
            self._repeat(match)
        else:
            piece = "(?:" if self._begins("(?:", position) else piece
            self._outside(piece, position)
        return len(piece)

    def _begins(self, text: str, position: int) -> bool:
        return self.pattern.startswith(text, position)

    def _outside(self, piece: str, position: int) -> None:
        if piece == "(" and self._begins("(?", position):
            self.refuse(self.pattern[position : position + 3])
        self.choices += 2 * (piece == "|")
        self.pieces.append(r"\Z" if piece == "$" else piece)

    def _repeat(self, match: re.Match[str]) -> None:
        if self._begins("+", match.end()):
            self.refuse(f"{match[0]}+")
        fixed = match[1] is not None and match[2] is None
        self.choices += not fixed
        self.pieces.append(match[0])

    def _escape(self, piece: str) -> str:
        letter = piece[1:]
        if letter == "s":
            return _SPACE if self.in_class else f"[{_SPACE}]"
        if letter == "S" and not self.in_class:
            return f"[^{_SPACE}]"
        if letter == "z":
            return r"\Z"
        plain = letter in _PLAIN and not (self.in_class and letter in "bB")
        if not letter or not (plain or (letter.isascii() and not letter.isalnum())):
            self.refuse(piece)
        return piece
