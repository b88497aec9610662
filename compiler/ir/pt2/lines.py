"""The user's line in the trace that torch keeps with every node."""

import re

_LINE = re.compile(
    r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<where>[^\n]+)\n(?P<code>[^\n]*)'
)
_TORCH = ("/site-packages/torch/", "/dist-packages/torch/", "torch/fx/", "<eval_with_key>")
_LIBRARIES = ("/site-packages/", "/dist-packages/", *_TORCH)


def user_line(trace: str) -> str | None:
    """File, line and text of the innermost call outside of libraries, else outside of torch (in a
    model of transformers), else of the innermost one.
    """
    call = _user_call(trace)
    return None if call is None else f"{_position(call)}: {call['code'].strip()}"[:300]


def user_position(trace: str) -> str | None:
    """File and line of the same call."""
    call = _user_call(trace)
    return None if call is None else _position(call)[:300]


def _user_call(trace: str) -> re.Match[str] | None:
    calls = list(_LINE.finditer(trace))
    for others in (_LIBRARIES, _TORCH, ()):
        mine = [call for call in calls if not any(name in call["file"] for name in others)]
        if mine:
            return mine[-1]
    return None


def _position(call: re.Match[str]) -> str:
    return f"{call['file']}:{call['line']}"
