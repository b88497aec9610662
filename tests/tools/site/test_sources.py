"""Sources of the site: every page has its place, and the reference names all there is."""

from pathlib import Path

import pytest

from compiler.verify.judge.tolerance import tolerance_of
from service.api.problems import INTERNAL, KINDS
from service.settings import Settings
from tools.site import __main__ as site
from tools.site.sources import assemble


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "source"
    assemble(folder)
    return folder


def test_the_navigation_has_every_page_once(sources: Path) -> None:
    assert site.find_misplaced(sources) == []
    added = sources / "reference" / "unlisted.md"
    added.write_text("# Unlisted")
    assert site.find_misplaced(sources) == ["reference/unlisted.md"]
    added.unlink()


def test_every_setting_is_explained(sources: Path) -> None:
    text = (sources / "reference" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert f"`RELAXD_{name.upper()}`" in text


def test_every_problem_is_listed(sources: Path) -> None:
    text = (sources / "reference" / "problems.md").read_text()
    assert all(kind.title in text for _, kind in KINDS if kind is not INTERNAL)


def test_commands_are_shown_without_the_terminals_markup(sources: Path) -> None:
    text = (sources / "reference" / "commands.md").read_text()
    assert "relaxd compile [OPTIONS] MODEL" in text
    assert "relaxd tenant create [OPTIONS] NAME" in text
    assert "[bold]" not in text


def test_tolerances_are_those_of_the_comparison(sources: Path) -> None:
    text = (sources / "reference" / "tolerances.md").read_text()
    for dtype in ("float32", "float16", "float8_e5m2"):
        allowed = tolerance_of(dtype, None, None)
        assert f"| `{dtype}` | {allowed.atol:g} | {allowed.rtol:g} |" in text
    assert "atol * range + rtol * |want|" in text


def test_a_block_that_is_a_file_has_its_name_as_title(sources: Path) -> None:
    """`python name.txt` is no language: the block would be text, and headings behind it lost."""
    text = (sources / "explanation/kernels/matmul.md").read_text()
    assert '```python title="matmul.txt"' in text
    assert "```python matmul.txt" not in text
