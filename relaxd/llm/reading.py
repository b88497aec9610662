"""Reads a model's answer as it comes: thoughts, what it says, and calls of tools."""

import json
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxd.llm.generation import pending
from relaxd.llm.tools import THINK, THINK_END, CallForm

_PYTHON_TAG = "<|python_tag|>"
_JUNK = re.compile(r"[\s\[\],;}`]*")
_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9
"""Mistral's templates take call ids of nine letters and digits alone."""


@dataclass(frozen=True)
class Call:
    """A call, or more of the arguments of one; id and name: where it begins."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Part:
    """More of an answer."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


class Reader:
    """Splits the text of one answer.

    form: in which calls are read, None for none; single: whether only the first call counts;
    thinks: whether thoughts are told from the rest; thinking: whether the answer begins within one.
    """

    def __init__(
        self,
        form: CallForm | None = None,
        *,
        single: bool = False,
        thinks: bool = False,
        thinking: bool = False,
    ) -> None:
        self._thought = _Thought(thinking=thinking) if thinks else None
        self._calls = _Calls(form, single=single) if form else None

    @property
    def called(self) -> bool:
        """True if the answer has called a tool."""
        return self._calls is not None and self._calls.count > 0

    def feed(self, text: str, *, last: bool = False) -> Part:
        """Read more of the answer."""
        reasoning = ""
        if self._thought is not None:
            reasoning, text = self._thought.feed(text, last=last)
        if self._calls is None:
            return Part(text, reasoning)
        content, calls = self._calls.feed(text, last=last)
        return Part(content, reasoning, tuple(calls))


class _Thought:
    """Splits a text into the thought at its beginning and the rest."""

    def __init__(self, *, thinking: bool) -> None:
        self._text = ""
        self._begun, self._ended = thinking, False
        self._strip = True

    def feed(self, text: str, *, last: bool) -> tuple[str, str]:
        """More of the thought, and more of the rest."""
        if self._ended:
            return "", self._rest(text)
        self._text += text
        if not self._begun:
            started = self._text.lstrip()
            if started.startswith(THINK):
                self._begun, self._text = True, started[len(THINK) :]
            elif last or not THINK.startswith(started):
                self._ended, self._strip = True, False
                return "", self._text
            else:
                return "", ""
        if self._strip:
            self._text = self._text.lstrip("\n")
        thought, mark, rest = self._text.partition(THINK_END)
        if mark:
            self._ended = self._strip = True
            return thought.rstrip("\n"), self._rest(rest)
        # New lines before the end are no part of it.
        sure = thought[: len(thought) - (0 if last else pending(thought, [THINK_END]))]
        sure = sure if last else sure.rstrip("\n")
        self._strip = self._strip and not sure
        self._text = thought[len(sure) :]
        return sure, ""

    def _rest(self, text: str) -> str:
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        return text


class _Calls:
    """Splits a text into content and calls, whose arguments come as they are written."""

    def __init__(self, form: CallForm, *, single: bool) -> None:
        self._form, self._single = form, single
        self._head = re.compile(form.pattern)
        self._text = ""
        self._inside = self._plain = False
        self._value: _Value | None = None
        self.count = 0

    def feed(self, text: str, *, last: bool) -> tuple[str, list[Call]]:
        """More of the content, and of the calls."""
        self._text += text
        content, calls = "", list[Call]()
        while True:
            if self._value is not None:
                moved = self._read_value(calls)
            elif self._inside:
                moved, more = self._read_head(calls, last=last)
                content += more
            else:
                moved, more = self._read_text(last=last)
                content += more
            if not moved:
                return content, calls

    def _read_text(self, *, last: bool) -> tuple[bool, str]:
        """Take the content before the next call."""
        text, trigger = self._text, self._form.trigger
        if not trigger:
            return self._read_start(last=last)
        before, mark, after = text.partition(trigger)
        if mark:
            self._text, self._inside = after, True
        else:
            before = text if last else text[: len(text) - pending(text, [trigger])]
            self._text = text[len(before) :]
        # Between and behind calls there is nothing but space.
        return bool(mark), "" if self.count and not before.strip() else before

    def _read_start(self, *, last: bool) -> tuple[bool, str]:
        """Decide by its first letters whether an answer is calls alone."""
        started = self._text.lstrip().removeprefix(_PYTHON_TAG).lstrip()
        undecided = not started or _PYTHON_TAG.startswith(started)
        if not self._plain and started.startswith("{"):
            self._inside, self._text = True, started
            return True, ""
        if not self._plain and undecided and not last:
            return False, ""
        self._plain = True
        content, self._text = self._text, ""
        return False, content

    def _read_head(self, calls: list[Call], *, last: bool) -> tuple[bool, str]:
        """Take the beginning of a call, or the end of all."""
        head = self._head.match(self._text)
        block, mark, after = self._text.partition(self._form.stop or "\0")
        if head and head.end() <= len(block) and head.end() < len(self._text):
            self._text = self._text[head.end() :]
            self._value = _Value()
            self._begin(calls, head[1])
            return True, ""
        if not mark and not last:
            return False, ""
        self._text, self._inside = after, False
        return bool(mark), "" if self._read_block(
            block, calls
        ) else self._form.trigger + block + mark

    def _read_block(self, block: str, calls: list[Call]) -> bool:
        """Read calls whose parts are in another order; returns whether the block is no text."""
        if _JUNK.fullmatch(block) or not self._form.writes_objects:
            return self.count > 0
        try:
            value = json.loads(block)
        except (ValueError, RecursionError):
            value = None
        parts = [_parts(each) for each in (value if isinstance(value, list) else [value])]
        if not all(parts):
            return False
        for name, arguments in filter(None, parts):
            self._begin(calls, name)
            self._add(calls, arguments)
        return True

    def _read_value(self, calls: list[Call]) -> bool:
        """Take more of the arguments."""
        assert self._value is not None
        size = self._value.feed(self._text)
        taken, self._text = self._text[:size], self._text[size:]
        if taken:
            self._add(calls, taken)
        if not self._value.complete:
            return False
        self._value = None
        return True

    def _begin(self, calls: list[Call], name: str) -> None:
        self.count += 1
        if not self._drops():
            calls.append(Call(self.count - 1, "", make_id(), name))

    def _add(self, calls: list[Call], arguments: str) -> None:
        if not self._drops():
            calls.append(Call(self.count - 1, arguments))

    def _drops(self) -> bool:
        return self._single and self.count > 1


class _Value:
    """Finds the end of one JSON value."""

    def __init__(self) -> None:
        self.complete = False
        self._depth = 0
        self._quoted = self._escaped = False

    def feed(self, text: str) -> int:
        """How many more letters belong to the value."""
        for position, letter in enumerate(text):
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif letter == "\\":
                    self._escaped = True
                elif letter == '"':
                    self._quoted = False
                    self.complete = self._depth == 0
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                if not self._depth:
                    # A number or a name ends with what is around it.
                    self.complete = True
                    return position
                self._depth -= 1
                self.complete = self._depth == 0
            if self.complete:
                return position + 1
        return len(text)


def _parts(value: Any) -> tuple[str, str] | None:
    """The name and the arguments of a call as an object, None for anything else."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments)


def make_id() -> str:
    """A new id of a call."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_ID_LENGTH))


def merge(parts: Sequence[Part]) -> tuple[str, str, list[Call]]:
    """The content, the thought and the calls of a complete answer."""
    calls: dict[int, Call] = {}
    for part in parts:
        for call in part.calls:
            before = calls.get(call.index, Call(call.index))
            calls[call.index] = Call(
                call.index,
                before.arguments + call.arguments,
                before.id or call.id,
                before.name or call.name,
            )
    content, reasoning = ("".join(getattr(part, name) for part in parts) for name in _TEXTS)
    return content, reasoning, list(calls.values())


_TEXTS = ("content", "reasoning")
