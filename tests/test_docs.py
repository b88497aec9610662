"""The pages of the project: what they link to, name and quote exists as they say."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import FENCE, PAGES, ROOT

KERNELS = ROOT / "docs" / "explanation" / "kernels"
GOLDEN = ROOT / "tests" / "compiler" / "passes" / "kernels" / "after"

LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
NAMED = re.compile(r"[\w.-]+(/[\w.*-]+)*/?")
SOURCE = re.compile(r"[\w./*-]+\.(py|c|cc|h|md|toml|yml)")
DOTTED = re.compile(r"(relaxd|service|compiler|artifacts)\.([a-z]\w*)\b")
MODULE = re.compile(r"python -m ([a-z]\w*(?:\.\w+)*)")

GENERATED = re.compile(
    r"(\d\d|NN)_\w+\.py|kernels/NAME\.py|model\.h|relaxd\.(toml|xml|sarif)|models\.yml"
    r"|predict\.c|relaxd_mlp(_model)?\.h"
)
"""Files that the compiler writes, in a dump or a bundle, or that a user's repository or another
project has, and this one does not hold.
"""


def of_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def files() -> frozenset[str]:
    """Every file below the root that is not hidden or of an interpreter's cache, and every folder
    above one.
    """
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".") or path.name == ".ci"]
    results = [path for top in tops for path in (top, *top.rglob("*")) if path.is_file()]
    inside = [path.relative_to(ROOT) for path in results if "__pycache__" not in path.parts]
    return frozenset(str(one) for path in inside for one in (path, *path.parents))


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub names them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    """Relative links to no file, or to no heading of a page."""
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            yield link


def missing_paths(text: str) -> Iterator[str]:
    """Paths in backticks that no file has, `*` standing for a name: from the repository's root, or
    for a source file the end of a path.
    """
    for span in SPAN.findall(FENCE.sub("", text)):
        rooted = "/" in span and span.split("/")[0] in files() and NAMED.fullmatch(span)
        if GENERATED.fullmatch(span) or not (rooted or SOURCE.fullmatch(span)):
            continue
        path = re.escape(span.rstrip("/")).replace(r"\*", "[^/]*")
        pattern = re.compile(path if rooted else f"(.*/)?{path}")
        if not any(pattern.fullmatch(file) for file in files()):
            yield span


def missing_modules(text: str) -> Iterator[str]:
    """Modules of ours behind `python -m` that cannot be run."""
    for name in MODULE.findall(text):
        path = name.replace(".", "/")
        ours = path.split("/")[0] in files()
        if ours and not {f"{path}.py", f"{path}/__main__.py"} & files():
            yield name


def missing_names(text: str) -> Iterator[str]:
    """Dotted names of ours in backticks whose second part is no module and no name of the first."""
    for span in SPAN.findall(FENCE.sub("", text)):
        dotted = DOTTED.match(span)
        if dotted is None or SOURCE.fullmatch(span) or GENERATED.fullmatch(span):
            continue
        package, name = dotted.groups()
        front = (ROOT / package / "__init__.py").read_text(encoding="utf-8")
        module = {f"{package}/{name}", f"{package}/{name}.py"} & files()
        if not module and not re.search(rf"\b{name}\b", front):
            yield span


def wrong_quotations(text: str) -> Iterator[str]:
    """Lines quoted from a golden file, named behind the fence's language, that it does not have in
    that order. `...` stands for lines that are left out.
    """
    for _, info, body in FENCE.findall(text):
        _, _, name = info.partition(" ")
        if name:
            golden = iter((GOLDEN / name).read_text(encoding="utf-8").splitlines())
            quoted = (line for line in body.splitlines() if line.strip() != "...")
            yield from (f"{name}: {line}" for line in quoted if line not in golden)


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_paths_and_modules_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [*missing_paths(text), *missing_modules(text), *missing_names(text)] == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "explanation" / "kernels").glob("*.md")), ids=of_page
)
def test_quotations_agree_with_golden_files(page: Path) -> None:
    assert list(wrong_quotations(page.read_text(encoding="utf-8"))) == []


def test_every_family_has_a_page_or_a_section() -> None:
    table = (KERNELS / "README.md").read_text(encoding="utf-8")
    families = ROOT / "compiler" / "passes" / "cpu" / "families"
    named = set(re.findall(r"^\| (\w+) \|", table, re.MULTILINE))
    assert {folder.parent.name for folder in families.glob("*/family.py")} <= named


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One: two\n[a](#one-two) [b](#two) [c](none.md) [d](page.md) [e](https://f)\n"
    )
    assert list(broken_links(page)) == ["#two", "none.md"]
    named = "`compiler/api.py` `compiler/none.py` `tests/*.py` `docs/*.rst` `other/none.py` `a.b`"
    assert list(missing_paths(named)) == ["compiler/none.py", "docs/*.rst", "other/none.py"]
    assert list(
        missing_modules("python -m tools.none, python -m compiler.process, python -m pip")
    ) == ["tools.none"]
    assert list(missing_names("`compiler.key`, `relaxd.load(out)`, `compiler.none.build`")) == [
        "compiler.none.build"
    ]
    quoted = "```python concatenation.txt\nfor i in range(3):\n...\nfor i in range(9):\n```\n"
    assert list(wrong_quotations(quoted)) == ["concatenation.txt: for i in range(9):"]
