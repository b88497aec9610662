"""The reference of the command line, from the commands' own help."""

import re
from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from relaxd.cli.app import app
from tools.site.tables import table

_MARKUP = re.compile(r"\[/?[a-z ]*\]")


def page() -> str:
    """Every command with its arguments and options."""
    root = get_command(app)
    lines = ["# Commands", "", f"{root.help}", "", f"{root.epilog}", ""]
    lines += (text for path, command in _commands((), root) for text in _section(path, command))
    return "\n".join(lines)


def _commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Those that run something, each with the words that call it."""
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from _commands((*path, name), below)
    elif not command.hidden:
        yield path, command


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    name = " ".join(("relaxd", *path))
    shown = [lhs for lhs in command.params if not lhs.hidden]
    arguments = [_argument(lhs) for lhs in shown if not isinstance(lhs, TyperOption)]
    yield f"## {name}\n"
    yield f"```\n{' '.join((name, '[OPTIONS]', *arguments))}\n```\n"
    yield f"{_MARKUP.sub('`', command.help or '')}\n"
    yield table(("argument or option", ""), [_row(lhs) for lhs in shown])


def _row(lhs: Any) -> tuple[str, str]:
    about = lhs.help or ""
    if not isinstance(lhs, TyperOption):
        return f"`{_argument(lhs)}`", about
    words = ", ".join(f"`{word}`" for word in (*lhs.opts, *lhs.secondary_opts))
    if lhs.default not in (None, False, ()) and not callable(lhs.default):
        about += f" Default: `{lhs.default}`."
    if isinstance(lhs.envvar, str):
        about += f" Also `{lhs.envvar}`."
    return words, about


def _argument(lhs: Any) -> str:
    word = lhs.metavar or str(lhs.name).upper()
    return f"{word}..." if lhs.nargs == -1 else str(word)
