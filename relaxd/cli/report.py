"""A model's inspection report as tables, whatever sections it has."""

from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from relaxd.cli.views import Name, plain_table

Row = dict[str, Any]
NOTHING: tuple[Any, ...] = (None, "", [], {})


def render_report(report: dict[str, Any]) -> Group:
    """Facts first, then one table for each section that lists things."""
    facts = [
        f"{_title(key)}: {_mark(value)}"
        for key, value in report.items()
        if value not in NOTHING and not _rows(value)
    ]
    tables: list[RenderableType] = []
    for key, value in report.items():
        if rows := _rows(value):
            tables += [Text(), Text(_title(key), style="bold underline"), _table(rows)]
    return Group(*facts, *tables)


def _rows(value: Any) -> list[Row]:
    if isinstance(value, list):
        return [item if isinstance(item, dict) else {"": item} for item in value]
    if isinstance(value, dict):
        return [
            {"name": name, **(item if isinstance(item, dict) else {"value": item})}
            for name, item in value.items()
        ]
    return []


def _table(rows: list[Row]) -> RenderableType:
    # A column that is empty in every row is left out.
    columns = [
        key
        for key in dict.fromkeys(key for row in rows for key in row)
        if any(row.get(key) not in NOTHING for row in rows)
    ]
    table = plain_table(*(column.upper().replace("_", " ") for column in columns))
    for row in rows:
        table.add_row(*(_named(row.get(column)) for column in columns))
    return table


def _mark(value: Any) -> str:
    if value is True:
        return "[green]yes[/]"
    return "[red]no[/]" if value is False else escape(_cell(value))


def _named(value: Any) -> RenderableType:
    """A cell; one word is cut in the middle where the column is narrower."""
    text = "" if isinstance(value, bool) else _cell(value)
    return Name(text) if text and " " not in text else _mark(value)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case dict():
            return ", ".join(f"{key}={_cell(item)}" for key, item in value.items())
        case list():
            return f"[{', '.join(_cell(item) for item in value)}]"
    return str(value)


def _title(key: str) -> str:
    return key.replace("_", " ")
