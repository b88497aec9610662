"""Scheduled tensor programs as short text: TVM's script without types, declarations and what every
function has.
"""

import re
from textwrap import dedent

from tvm import tirx

_SIMPLER = (
    (r"T\.int64\((-?\d+)\)", r"\1"),
    (r"T\.float32\(([^()]*)\)", r"\1"),
    (r", annotations=\{[^}]*\}", ""),
    (r": T\.let\[T\.int64\]", ""),
    (r"T\.alloc_(local|buffer)\(\((.*?),?\)\)", r"\1[\2]"),
    (r"for (\w+) in T\.vectorized\((\d+)\):\n\s+", r"[\1 < \2] "),
    (r"T\.", ""),
)


def loops(func: tirx.PrimFunc) -> str:
    """The body of a scheduled function; `[lane < 8] statement` is a vector statement."""
    lines = func.script().partition("T.writes()\n")[2].splitlines()
    text = dedent("\n".join(line for line in lines if ".view(" not in line))
    for pattern, plain in _SIMPLER:
        text = re.sub(pattern, plain, text)
    return text.strip() + "\n"


def nest(func: tirx.PrimFunc) -> str:
    """The loops and branches alone."""
    headers = [
        line
        for line in loops(func).splitlines()
        if line.strip().startswith(("for ", "if ", "else"))
    ]
    return "\n".join(headers) + "\n"
