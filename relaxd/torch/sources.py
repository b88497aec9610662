"""The user's line: in the stack of a call, or in an error that torch raised."""

import linecache
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

_IN_TEXT = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_OWN = str(Path(__file__).parent)
_WATCHING = ("sources.py", "assumptions.py", "recurrent.py")
"""Files of this package that torch calls while it traces: what called torch is further out."""
_LIBRARIES = ("/site-packages/", "/dist-packages/")


@dataclass(frozen=True)
class Source:
    """A line of the user's code."""

    file: str
    line: int

    @property
    def code(self) -> str:
        """The line, without indentation."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def position(self) -> str:
        """File and line, the file below the current folder without it."""
        path = Path(self.file)
        here = Path.cwd()
        return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{self.line}"

    @property
    def text(self) -> str:
        """File, line and code."""
        return f"{self.position}: {self.code}"[:300] if self.code else self.position


def locate(error: BaseException) -> Source | None:
    """The innermost line of the user's own in an error's text, else in its traceback."""
    named = [Source(match["file"], int(match["line"])) for match in _IN_TEXT.finditer(str(error))]
    calls = [
        Source(frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return _innermost(named) or _innermost(calls)


def current_source() -> Source | None:
    """The innermost line of the user's own that is being run, or that Dynamo reads."""
    from torch._guards import TracingContext

    traced = [Source(item.filename, item.lineno or 0) for item in TracingContext.extract_stack()]
    return _innermost(traced) or _innermost(_callers())


def _callers() -> list[Source]:
    frame: FrameType | None = sys._getframe()
    calls = []
    while frame is not None:
        calls.append(Source(frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return calls[::-1]


def _innermost(calls: Iterable[Source]) -> Source | None:
    """The last call outside of libraries, else outside of torch; None where the calls end in this
    package.
    """
    mine: list[Source] = []
    for call in reversed(list(calls)):
        if call.file.startswith(_OWN):
            if Path(call.file).name not in _WATCHING:
                break
        elif not call.file.startswith((_torch_folder(), "<")):
            mine.append(call)
    users = [call for call in mine if not any(name in call.file for name in _LIBRARIES)]
    return next(iter(users or mine), None)


@cache
def _torch_folder() -> str:
    module = sys.modules.get("torch")
    file = getattr(module, "__file__", None)
    return str(Path(file).parent) if file else "\0"
