"""Prints how large packages, files and functions are, how much is commented, and which folders
import each other: `python -m tools.structure`. With `--since COMMIT`, also by how many lines each
package and folder has changed since then.
"""

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parent.parent
SHIPPED = ("relaxd", "service", "compiler", "artifacts")
PACKAGES = (*SHIPPED, "tests", "tools", "benchmarks")
MOST_FILE_LINES = 600
MOST_FUNCTION_LINES = 25
"""The limit for nine functions of ten in a root package; single ones may be longer."""

_HEADER = ("folder", "files", "lines", "change", "file lines", "functions", "comments")
_WIDTHS = (6, 8, 8, 13, 11, 10)
_BLANK = {
    *(tokenize.ENCODING, tokenize.ENDMARKER, tokenize.NEWLINE, tokenize.NL),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT),
}

Graph: TypeAlias = dict[str, set[str]]


@dataclass(frozen=True)
class Module:
    """Facts about one file: its dotted name, sizes in lines, and what it imports.

    hints: names imported for type checkers alone; comments: lines that hold nothing else.
    """

    path: Path
    name: str
    lines: int
    functions: tuple[int, ...]
    code: int
    comments: int
    imports: frozenset[str]
    hints: frozenset[str]

    @property
    def folder(self) -> str:
        """The dotted name of the folder that the file lies in."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def main(
    root: Path = ROOT, packages: Sequence[str] = PACKAGES, arguments: Sequence[str] | None = None
) -> int:
    """Print the table and what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m tools.structure", description=__doc__)
    parser.add_argument("--since", metavar="COMMIT", help="show how lines changed since a commit")
    since = parser.parse_args(arguments).since
    earlier = lines_at(root, since, packages) if since else None
    modules = [module for package in packages for module in read(root, package)]
    for row in table(modules, packages, earlier):
        print(row)
    wrong = list(complaints(modules, packages))
    print("", *(wrong or ["no import cycles between folders"]), sep="\n")
    return 1 if wrong else 0


def read(root: Path, package: str) -> Iterator[Module]:
    """Every module of a package below `root`."""
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield read_module(path, name)


def lines_at(root: Path, commit: str, packages: Sequence[str]) -> dict[str, int]:
    """Lines of Python by folder at a commit; raises CalledProcessError for an unknown one."""
    patterns = [f"{package}/*.py" for package in packages]
    command = ["git", "grep", "--count", "", commit, "--", *patterns]
    counted = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    lines: dict[str, int] = defaultdict(int)
    for entry in counted.stdout.splitlines():
        path, _, number = entry.removeprefix(f"{commit}:").rpartition(":")
        lines[".".join(Path(path).parent.parts)] += int(number)
    return lines


def read_module(path: Path, name: str) -> Module:
    """Measure one file; raises SyntaxError where it is no Python."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    code, comments = count_lines(text, tree)
    functions = tuple(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    guarded = set(_type_checked(tree))
    imports = imported_names(set(ast.walk(tree)) - guarded, package)
    hints = imported_names(guarded, package)
    lines = len(text.splitlines())
    return Module(path, name, lines, functions, code, comments, imports, hints)


def count_lines(text: str, tree: ast.Module) -> tuple[int, int]:
    """How many lines hold code, and how many hold a comment alone; docstrings are neither."""
    docs: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _BLANK:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docs), len(comments - code)


def imported_names(nodes: Iterable[ast.AST], package: str) -> frozenset[str]:
    """Dotted names that the import statements among the nodes of a module in `package` mean.

    `from a import b` gives `a.b`: only the whole tree knows whether `b` is a module.
    """
    results = set[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            results |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            results |= {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(results)


def _type_checked(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node under `if TYPE_CHECKING:`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from (inner for statement in node.body for inner in ast.walk(statement))


def table(
    modules: Sequence[Module],
    packages: Sequence[str],
    earlier: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """One row a root package with all that lies in it, then one for every folder's own files; at
    the end all packages that ship. earlier: lines by folder, to compare with.
    """
    yield _row(*_HEADER)
    for package in packages:
        inside = _inside(modules, [package])
        if inside:
            yield _measured(package, inside, _lines_of(earlier, [package]))
        folders = sorted({module.folder for module in inside})
        for folder in folders if len(folders) > 1 else ():
            before = None if earlier is None else earlier.get(folder, 0)
            own = [one for one in inside if one.folder == folder]
            yield _measured(f"  {folder}", own, before)
    shipped = _inside(modules, SHIPPED)
    if shipped:
        yield _measured("all that ships", shipped, _lines_of(earlier, SHIPPED))


def _inside(modules: Sequence[Module], packages: Sequence[str]) -> list[Module]:
    return [module for module in modules if module.name.split(".")[0] in packages]


def _lines_of(earlier: Mapping[str, int] | None, packages: Sequence[str]) -> int | None:
    if earlier is None:
        return None
    return sum(lines for name, lines in earlier.items() if name.split(".")[0] in packages)


def _measured(label: str, modules: Sequence[Module], earlier: int | None) -> str:
    comments, code = (sum(getattr(one, key) for one in modules) for key in ("comments", "code"))
    lines = sum(one.lines for one in modules)
    return _row(
        label,
        str(len(modules)),
        str(lines),
        "" if earlier is None else f"{lines - earlier:+}",
        _sizes([module.lines for module in modules]),
        _sizes([lines for module in modules for lines in module.functions]),
        f"{100 * comments / code:.1f} %" if code else "-",
    )


def _row(folder: str, *cells: str) -> str:
    columns = zip(cells, _WIDTHS, strict=True)
    return f"{folder:<42}" + "".join(f"{cell:>{width}}" for cell, width in columns)


def _sizes(sizes: Sequence[int]) -> str:
    """Median, 90th percentile and maximum."""
    return "/".join(str(rank(sizes, share)) for share in (50, 90, 100)) if sizes else "-"


def rank(sizes: Sequence[int], percent: int) -> int:
    """The smallest size that at least so many percent of all sizes do not exceed."""
    return sorted(sizes)[-(-len(sizes) * percent // 100) - 1]


def complaints(modules: Sequence[Module], packages: Sequence[str]) -> Iterator[str]:
    """Import cycles between folders, files that are too long, packages of long functions."""
    for cycle in cycles(unit_graph(modules)):
        yield f"import cycle: {', '.join(cycle)}"
    for module in modules:
        if module.lines > MOST_FILE_LINES:
            yield f"{module.name}: {module.lines} lines, over {MOST_FILE_LINES}"
    for package in packages:
        inside = _inside(modules, [package])
        sizes = [lines for module in inside for lines in module.functions]
        longest = rank(sizes, 90) if sizes else 0
        if longest > MOST_FUNCTION_LINES:
            yield f"{package}: functions' p90 is {longest} lines, over {MOST_FUNCTION_LINES}"


def unit_graph(modules: Sequence[Module]) -> Graph:
    """Which units import which. A unit is a leaf folder, or a module beside subfolders.

    A type's name may go round in a circle inside a folder, as that of a node and its scope does.
    """
    units = _units(modules)
    folders = {module.name: module.folder for module in modules}
    graph: Graph = defaultdict(set)
    for module in modules:
        own = units[module.name]
        named = {_module(name, units) for name in module.imports}
        hinted = {_module(name, units) for name in module.hints}
        named |= {name for name in hinted if name and folders[name] != module.folder}
        graph[own] |= {units[name] for name in named if name} - {own}
    return graph


def _module(name: str, known: Mapping[str, str]) -> str | None:
    """The module that an imported name is or lies in, None for one of another project."""
    parent = name.rpartition(".")[0]
    return name if name in known else parent if parent in known else None


def _units(modules: Sequence[Module]) -> dict[str, str]:
    """The unit of every module, by the module's name."""
    folders = {module.folder for module in modules}
    parents = {folder.rpartition(".")[0] for folder in folders}
    return {
        module.name: module.name if module.folder in parents else module.folder
        for module in modules
    }


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, each sorted."""
    reached = {node: _reachable(graph, node) for node in graph}
    components = {
        tuple(sorted(other for other in reached[node] if node in reached.get(other, ())))
        for node in graph
        if node in reached[node]
    }
    return [list(component) for component in sorted(components)]


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """The nodes at the end of a path of one edge or more from `start`."""
    seen: set[str] = set()
    queue = [start]
    while queue:
        fresh = graph.get(queue.pop(), set()) - seen
        seen |= fresh
        queue += fresh
    return seen


if __name__ == "__main__":
    sys.exit(main())
