"""The sources of the site: docs/, the pages at the repository's root, generated reference."""

import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tools.site import commands, problems, schemas, settings, tolerances

ROOT = Path(__file__).parent.parent.parent
ANCHORS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "contributing/guide.md",
    "STYLE.md": "contributing/style.md",
    "docs/README.md": "contents.md",
}
"""Pages that have another place on the site than their path below docs/."""

GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands.page,
    "reference/problems.md": problems.page,
    "reference/schemas.md": schemas.page,
    "reference/settings.md": settings.page,
    "reference/tolerances.md": tolerances.page,
}

_LINK = re.compile(r"\[([^]\n]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_FILE_BLOCK = re.compile(r"(?m)^```(\w+) (\S+\.\w+)$")
"""The first line of a block that is a file; Markdown's own reading of it ends at the blank."""


def assemble(folder: Path) -> None:
    """Fill `folder`, which must not exist."""
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    roots = [ROOT / name for name in ANCHORS if "/" not in name]
    pages = [path.relative_to(ROOT).as_posix() for path in [*roots, *ROOT.glob("docs/**/*.md")]]
    files = {_anchor(page): _convert(page) for page in pages}
    files |= {name: write() for name, write in GENERATED.items()}
    files["site.css"] = (Path(__file__).parent / "site.css").read_text(encoding="utf-8")
    files |= {f"reference/{name}": text for name, text in schemas.documents().items()}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _anchor(path: str) -> str:
    """The place on the site of a file of the repository."""
    return ANCHORS.get(path, path.removeprefix("docs/"))


def _convert(page: str) -> str:
    """The text of a page with titles on blocks that are files, and links that hold on the site."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return _LINK.sub(lambda link: _relink(link, page), _FILE_BLOCK.sub(r'```\1 title="\2"', text))


def _relink(link: re.Match[str], page: str) -> str:
    """A link of `page` as the site has it; a link to a file that is not on the site is its text."""
    text, path, fragment = link.groups()
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if target not in ANCHORS and not target.startswith("docs/"):
        return text
    moved = posixpath.relpath(_anchor(target), posixpath.dirname(_anchor(page)))
    return f"[{text}]({moved}{fragment or ''})"
