"""Reads a file that declares custom operators: TOML, with C sources beside it."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from relaxd.contract.operators import MOST_CHARACTERS, CustomOperator, operators_of
from relaxd.errors import DeclarationError

Operators: TypeAlias = "str | Path | Iterable[CustomOperator | Mapping[str, Any]]"
"""The path of a file, or what it declares."""


def read_operators(operators: Operators) -> tuple[CustomOperator, ...]:
    """The operators that a file declares, `source` being the path of a C file from its folder;
    those that are declared already as they are. Raises DeclarationError.
    """
    if not isinstance(operators, (str, Path)):
        return operators_of(operators)
    path = Path(operators)
    try:
        document = tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise _wrong(f"{path} is not valid TOML: {error}") from error
    tables = document.pop("operator", None)
    if document or not isinstance(tables, list) or not tables:
        raise _wrong(f"{path} has to be a list of [[operator]]")
    return operators_of([_with_source(table, path.parent) for table in tables])


def _with_source(table: Any, folder: Path) -> Any:
    source = table.get("source") if isinstance(table, dict) else None
    if not isinstance(source, str) or not source:
        raise _wrong(f"an operator has the source {source!r}", "give the path of a C file")
    return {**table, "source": _read(folder / source)}


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(f"cannot read {path}: {error}") from error
    if len(text) > MOST_CHARACTERS:
        raise _wrong(f"{path} has more than {MOST_CHARACTERS} characters")
    return text


def _wrong(message: str, hint: str | None = None) -> DeclarationError:
    return DeclarationError(message, field="operators", hint=hint)
