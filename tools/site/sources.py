"""The sources of the site: docs/, the pages at the repository's root, generated reference."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tools.site import commands, problems, schemas, settings, tolerances

ROOT = Path(__file__).parent.parent.parent
OUTSIDE = {"README.md": "index.md", "ARCHITECTURE.md": "architecture.md"}
"""Pages at the repository's root, and their names on the site."""

GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands.page,
    "reference/problems.md": problems.page,
    "reference/schemas.md": schemas.page,
    "reference/settings.md": settings.page,
    "reference/tolerances.md": tolerances.page,
}

_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_NAMED = re.compile(r"(?m)^```(\w+) (\S+\.\w+)$")
"""The first line of a block that is a file; Markdown's own reading of it ends at the blank."""


def assemble(folder: Path) -> None:
    """Fill `folder`, which must not exist."""
    shutil.copytree(ROOT / "docs", folder)
    for page in folder.rglob("*.md"):
        text = _titled(_to_the_root_pages(page.read_text(encoding="utf-8")))
        page.write_text(text, encoding="utf-8")
    made = {OUTSIDE[name]: _moved((ROOT / name).read_text(encoding="utf-8")) for name in OUTSIDE}
    made |= {name: make() for name, make in GENERATED.items()}
    made["site.css"] = (Path(__file__).parent / "site.css").read_text(encoding="utf-8")
    made |= {f"reference/{name}": text for name, text in schemas.documents().items()}
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _to_the_root_pages(text: str) -> str:
    """A page of docs/ whose links to the root's pages lead to their places on the site."""
    for source, name in OUTSIDE.items():
        text = re.sub(rf"(?<=\]\()((?:\.\./)*)\.\./{source}(?=[)#])", rf"\1{name}", text)
    return text


def _titled(text: str) -> str:
    """A page whose blocks that are files have their names as titles."""
    return _NAMED.sub(r'```\1 title="\2"', text)


def _moved(text: str) -> str:
    """A page of the root as one of docs/: links into docs/ lose that folder, links to files that
    are no pages become names.
    """
    text = re.sub(r"\[([^]]*)\]\((?:LICENSE|[\w/]+\.(?:py|toml))\)", r"\1", text)
    return _LINK.sub(lambda link: OUTSIDE.get(link[1], link[1].removeprefix("docs/")), text)
