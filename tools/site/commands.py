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
    shown = [one for one in command.params if not one.hidden]
    arguments = [_argument(one) for one in shown if not isinstance(one, TyperOption)]
    yield f"## {name}\n"
    yield f"```\n{' '.join((name, '[OPTIONS]', *arguments))}\n```\n"
    yield f"{_MARKUP.sub('`', command.help or '')}\n"
    yield table(("argument or option", ""), [_row(one) for one in shown])


def _row(one: Any) -> tuple[str, str]:
    about = one.help or ""
    if not isinstance(one, TyperOption):
        return f"`{_argument(one)}`", about
    words = ", ".join(f"`{word}`" for word in (*one.opts, *one.secondary_opts))
    if one.default not in (None, False, ()) and not callable(one.default):
        about += f" Default: `{one.default}`."
    if isinstance(one.envvar, str):
        about += f" Also `{one.envvar}`."
    return words, about


def _argument(one: Any) -> str:
    word = one.metavar or str(one.name).upper()
    return f"{word}..." if one.nargs == -1 else str(word)
