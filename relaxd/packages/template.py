"""Templates of files: `@name@` is a value, and lines between `@each rows@` and `@end@`, each alone
on its line, are repeated for every row, whose values come before those around it. Lines for no row
are left out, which is how a template has conditions.
"""

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

_EACH = re.compile(r"\s*@each (\w+)@\s*")
_END = re.compile(r"\s*@end@\s*")
_VALUE = re.compile("@([a-z_]+)@")


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The text; raises KeyError for a value that is not there."""
    return _fill_lines(template.splitlines(keepends=True), ChainMap(dict(values)))


def _fill_lines(lines: list[str], values: ChainMap[str, Any]) -> str:
    text, rest = "", iter(lines)
    for line in rest:
        if match := _EACH.fullmatch(line):
            block = list(_block(rest))
            text += "".join(_fill_lines(block, values.new_child(row)) for row in values[match[1]])
        else:
            text += _VALUE.sub(lambda match: str(values[match[1]]), line)
    return text


def _block(lines: Iterator[str]) -> Iterator[str]:
    """The lines before the matching end, which is taken as well."""
    depth = 1
    for line in lines:
        depth += bool(_EACH.fullmatch(line)) - bool(_END.fullmatch(line))
        if depth == 0:
            return
        yield line
