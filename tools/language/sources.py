"""The prose of the repository's files: pieces of text, and the names that they define."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

FOLDERS = ("relaxd", "service", "compiler", "artifacts", "clients", "tests", "tools", "benchmarks")
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "STYLE.md")
"""Pages at the repository's root; all of docs/ are pages, too."""

_C_LIKE = {".c", ".h", ".cc", ".js", ".mjs"}
_FENCE = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`\n]+`|<!--.*?-->|(?<=\])\([^)\s]+\)|https?://\S+", re.DOTALL)
_COMMENT = re.compile(r"(?:^|  )[ \t]*#(?!!)(.*)$", re.MULTILINE)
_C_TEXT = re.compile(
    r"/\*.*?\*/|(?<!:)//[^\n]*|\"(?:[^\"\\\n]|\\.)* (?:[^\"\\\n]|\\.)*\"", re.DOTALL
)
_TICKS = re.compile(r"`[^`]+`")
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Text:
    """A piece of prose that begins in a line."""

    line: int
    words: str


@dataclass(frozen=True)
class Name:
    """A name that is defined in a line.

    public_function: others may call it by that name. local: only one function, comprehension or
    lambda sees it, or it is a parameter that Python's own methods (`__eq__`) name.
    """

    line: int
    name: str
    public_function: bool = False
    local: bool = False


@dataclass(frozen=True)
class Source:
    """The prose, names and docstrings of one file."""

    path: Path
    texts: tuple[Text, ...]
    names: tuple[Name, ...] = ()
    docstrings: tuple[Text, ...] = ()

    @property
    def is_page(self) -> bool:
        """True if this is a page of the documentation."""
        return self.path.suffix == ".md"


def read_sources(root: Path) -> Iterator[Source]:
    """Every page and source file below `root`, in order; paths are relative to it."""
    for name in FOLDERS:
        for path in sorted((root / name).rglob("*")):
            if path.suffix == ".py":
                yield read_python(path.read_text(encoding="utf-8"), path.relative_to(root))
            elif path.suffix in _C_LIKE and "node_modules" not in path.parts:
                yield read_c(path.read_text(encoding="utf-8"), path.relative_to(root))
    for page in (*(root / name for name in PAGES), *sorted((root / "docs").rglob("*.md"))):
        if page.exists():
            yield read_page(page.read_text(encoding="utf-8"), page.relative_to(root))


def read_page(text: str, path: Path) -> Source:
    """A page without what it quotes: blocks, code spans, targets of links, comments."""
    for quoted in (_FENCE, _SPAN):
        text = quoted.sub(lambda result: re.sub(r"[^\n]", " ", result[0]), text)
    return Source(path, tuple(_paragraphs(text)))


def read_c(text: str, path: Path) -> Source:
    """Comments, and strings of more than one word, of C and JavaScript."""
    result = _C_TEXT.finditer(text)
    return Source(path, tuple(Text(text.count("\n", 0, one.start()) + 1, one[0]) for one in result))


def read_python(text: str, path: Path) -> Source:
    """Docstrings, comments, strings of more than one word, and what is defined."""
    tree = ast.parse(text, str(path))
    nodes = list(ast.walk(tree))
    docstrings = tuple(_docstrings(nodes))
    strings: list[Text] = []
    quoted = set[int]()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            quoted |= set(lines) if len(lines) > 1 else set()
            if " " in node.value:
                strings.append(Text(node.lineno, _TICKS.sub(" ", node.value)))
    comments = _comments(text, quoted)
    return Source(path, (*strings, *comments), tuple(_names(tree, nodes)), docstrings)


def _paragraphs(text: str) -> Iterator[Text]:
    line = 1
    for paragraph in text.split("\n\n"):
        if paragraph.strip():
            yield Text(line, paragraph)
        line += paragraph.count("\n") + 2


def _comments(text: str, quoted: set[int]) -> Iterator[Text]:
    """Neighbouring lines of comments are one text: a phrase may go over the end of a line."""
    first, last, words = 0, 0, ""
    for result in _COMMENT.finditer(text):
        line = text.count("\n", 0, result.end()) + 1
        if line in quoted:
            continue
        if line == last + 1:
            words += f"\n{result[1]}"
        else:
            if words:
                yield Text(first, _TICKS.sub(" ", words))
            first, words = line, result[1]
        last = line
    if words:
        yield Text(first, _TICKS.sub(" ", words))


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[Text]:
    for node in nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | _Function) or not node.body:
            continue
        match node.body[0]:
            case ast.Expr(value=ast.Constant(value=str(words))):
                yield Text(node.body[0].lineno, words)


def _names(tree: ast.Module, nodes: Iterable[ast.AST]) -> Iterator[Name]:
    """Functions, classes, parameters and variables, each name once: as a local if only that."""
    public = {id(node) for node in _public_functions(tree)}
    local = {id(node) for node in _locals(nodes)}
    seen = set[str]()
    for node in sorted(nodes, key=lambda node: id(node) in local):
        name, line = _define(node)
        if name and (id(node) in public or name not in seen):
            yield Name(line, name, id(node) in public, id(node) in local)
            seen.add(name)


def _locals(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Variables of functions, comprehensions and lambdas, and parameters of `__eq__` and such."""
    for node in nodes:
        if isinstance(node, _Function):
            yield from (each for body in node.body for each in _variables(body))
            if node.name.startswith("__") and node.name != "__init__":
                yield from ast.walk(node.args)
        elif isinstance(node, ast.comprehension):
            yield from ast.walk(node.target)
        elif isinstance(node, ast.Lambda):
            yield from ast.walk(node.args)


def _variables(body: ast.AST) -> Iterator[ast.Name]:
    """Names that a statement binds; fields of a class inside of it are none."""
    if isinstance(body, ast.Name):
        yield body
    if not isinstance(body, ast.ClassDef):
        for child in ast.iter_child_nodes(body):
            yield from _variables(child)


def _define(node: ast.AST) -> tuple[str, int]:
    """The name that a node defines and its line; an empty one if it defines none."""
    if isinstance(node, ast.ClassDef | _Function):
        return node.name, node.lineno
    if isinstance(node, ast.arg):
        return node.arg, node.lineno
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id, node.lineno
    return "", 0


def _public_functions(tree: ast.Module) -> Iterator[_Function]:
    """Functions of the module and methods of its classes that others may call: no properties and
    fixtures, which are used as values.
    """
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    for node in (statement for body in bodies for statement in body):
        if isinstance(node, _Function) and not node.name.startswith("_") and not _is_value(node):
            yield node


def _is_value(node: _Function) -> bool:
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return "property" in decorators or "fixture" in decorators
