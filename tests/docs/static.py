"""Checks of a block that is not run: its syntax, and that the commands, options, paths and keys it
names exist.
"""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import typer.main
import yaml

from relaxd.cli.app import app
from tests.docs.blocks import ROOT, Block, Kind

_MAKE = re.compile(r"^([a-z]+):", re.MULTILINE)
_END = {"|", "||", "&&", ";", "&", "(", ")", "|&"}


def problems(block: Block) -> Iterator[str]:
    """Find faults of a block without running it."""
    match block.language:
        case "sh" | "console":
            for command in block.commands:
                yield from _shell(command.line)
        case "json":
            yield from _document(block, json.loads)
        case "yaml":
            yield from _document(block, yaml.safe_load)
        case "toml":
            yield from _document(block, tomllib.loads)
        case "python" if not block.info and Kind.FROM not in block.marks:
            try:
                compile(block.body, str(block), "exec")
            except SyntaxError as error:
                yield f"{block}: {error}"
    for kind in (Kind.FROM, Kind.ELSEWHERE):
        if kind in block.marks and not (ROOT / block.marks[kind]).is_file():
            yield f"{block}: there is no file {block.marks[kind]}"
    if Kind.FROM in block.marks:
        yield from not_in_file(block)
    if Kind.ELSEWHERE in block.marks:
        text = (ROOT / block.marks[Kind.ELSEWHERE]).read_text()
        if block.page.name not in text:
            yield f"{block}: {block.marks[Kind.ELSEWHERE]} does not name the page"


def _document(block: Block, read: Any) -> Iterator[str]:
    try:
        read(block.body)
    except (ValueError, yaml.YAMLError) as error:
        yield f"{block}: {error}"


def not_in_file(block: Block) -> Iterator[str]:
    """Lines that the file of which this is an excerpt does not have in that order; `...` stands for
    what is left out, and comments at the end of a line are the page's own.
    """
    source = (ROOT / block.marks[Kind.FROM]).read_text(encoding="utf-8").splitlines()
    lines, index = [line.strip() for line in source], 0
    for line in block.body.splitlines():
        wanted = re.sub(r" {2,}#.*$", "", line).strip()
        if wanted in ("", "..."):
            continue
        parts = [re.escape(part) for part in wanted.split("...")]
        result = next((n for n in range(index, len(lines)) if _is(parts, lines[n])), None)
        if result is None:
            yield f"{block}: {block.marks[Kind.FROM]} has no line {wanted!r} there"
        else:
            index = result + 1


def _is(parts: list[str], line: str) -> bool:
    return re.fullmatch(".*".join(parts), re.sub(r" {2,}#.*$", "", line)) is not None


def _shell(text: str) -> Iterator[str]:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        yield f"{text!r}: {done.stderr}"
        return
    for words in commands_in(text):
        yield from _command(words)


def commands_in(text: str) -> Iterator[list[str]]:
    """The simple commands of a script, each as words, without variables set before them."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in _END:
                words.append(word)
                continue
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []


def _command(words: list[str]) -> Iterator[str]:
    program, *rest = words
    if program.rpartition("/")[2] == "relaxd":
        yield from unknown_options(rest)
    elif program == "make":
        targets = _MAKE.findall((ROOT / "Makefile").read_text())
        yield from (
            f"make has no target {word}" for word in rest if word.isalpha() and word not in targets
        )
    for word in rest:
        path = re.match(r"((?:tests|docker|benchmarks|tools|docs|service|compiler)/[\w./-]+)", word)
        if path and not (ROOT / path[1]).exists():
            yield f"there is no {path[1]}"


def unknown_options(arguments: list[str]) -> Iterator[str]:
    """Find arguments that the command line refuses; nothing is run."""
    command: Any = typer.main.get_command(app)
    context = None
    try:
        while hasattr(command, "get_command"):
            context = command.make_context("relaxd", arguments, parent=context)
            name, *arguments = [*context._protected_args, *context.args] or [""]
            result = command.get_command(context, name)
            if result is None:
                yield f"relaxd has no command {name!r}"
                return
            command = result
        command.make_context(command.name, arguments, parent=context)
    except typer.Exit:
        return
    except Exception as error:
        yield f"relaxd {shlex.join(arguments)}: {getattr(error, 'message', error)}"
