"""The user's line in the trace that torch keeps with every node."""

from __future__ import annotations

import re

_LINE = re.compile(
    r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<where>[^\n]+)\n(?P<code>[^\n]*)'
)
_LIBRARIES = ("/site-packages/", "/dist-packages/", "torch/fx/", "<eval_with_key>")


def user_line(trace: str) -> str | None:
    """File, line and text of the innermost call outside of libraries, else of the innermost one."""
    calls = list(_LINE.finditer(trace))
    mine = [call for call in calls if not any(name in call["file"] for name in _LIBRARIES)]
    if not calls:
        return None
    call = (mine or calls)[-1]
    return f"{call['file']}:{call['line']}: {call['code'].strip()}"[:300]
