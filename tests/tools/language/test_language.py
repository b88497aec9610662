"""The linter of the language, on a small repository with a glossary of its own."""

import json
from pathlib import Path

import pytest

from tools.language import __main__ as language
from tools.language.glossary import read_rules
from tools.language.sources import read_page, read_python

GLOSSARY = """# Glossary

| Term | Meaning | Not in text | Not in names |
|---|---|---|---|
| perturb | change a little | `nudg*` | `nudg*` |
| position | an index | `places` | `place` |
| result | what came out | | `found` alone |
| lhs | left operand | | `one` alone in definitions |
| memory-bound | slow memory | `few  words` | `outruns_cache` |

| Rule | Words |
|---|---|
| irregular participle | `kept` |
| no participle | `seed` |
| docstring opening | `Whether` |
| term in names | `in_place` |

| Instead of | Say |
|---|---|
| `bar` | the target |
"""


def plant(root: Path, code: str = "", page: str = "") -> Path:
    for name, text in {
        "docs/glossary.md": GLOSSARY,
        "docs/page.md": page,
        "compiler/one.py": code,
        "tools/language/exceptions.toml": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def rules_of(root: Path) -> list[tuple[int, str]]:
    return sorted((one.line, one.rule) for one in language.collect(root))


def test_names_are_refused_by_their_parts(tmp_path: Path) -> None:
    code = "def nudge_all(a_place, found_it):\n    found = 1\nclass OutrunsCache: ...\nplaced = 2\n"
    assert rules_of(plant(tmp_path, code)) == [
        (1, "name: nudg*"),
        (1, "name: place"),
        (2, "name: found"),
        (3, "name: outruns cache"),
    ]


def test_locals_may_have_a_name_that_definitions_may_not(tmp_path: Path) -> None:
    code = (
        "def add(one):\n    one = [one for one in one]\n"
        "class Two:\n"
        "    one: int\n"
        "    def __eq__(self, one): ...\n"
        "total = lambda one: sum(one for one in one)\n"
        "def build():\n"
        "    class Three:\n"
        "        one: int\n"
    )
    assert rules_of(plant(tmp_path, code)) == [(1, "name: one")]
    assert rules_of(plant(tmp_path, code.replace("def add(one)", "def add(two)"))) == [
        (4, "name: one")
    ]


def test_terms_of_the_field_may_have_a_refused_part(tmp_path: Path) -> None:
    code = "def run(in_place, in_places, place): ...\n"
    assert rules_of(plant(tmp_path, code)) == [(1, "name: place")]


def test_prose_is_refused_in_docstrings_comments_and_messages(tmp_path: Path) -> None:
    code = (
        '"""Nudges it by few\nwords."""\n'
        "# of few\n# words\n"
        'text = "two Places"  # nudged\n'
        '"""Quoted `places` are not looked at."""\n'
        'key = "places"\n'
    )
    assert rules_of(plant(tmp_path, code)) == [
        (1, "text: few words"),
        (1, "text: nudg*"),
        (3, "text: few words"),
        (5, "text: nudg*"),
        (5, "text: places"),
    ]


def test_pages_are_read_without_what_they_quote(tmp_path: Path) -> None:
    page = (
        "# Places\n\n`places` [text](places.md)\n\n```sh\nnudge\n```\n<!-- nudge -->\n"
        "    The bar is\n"
    )
    assert rules_of(plant(tmp_path, "bar = 'the bar of it'\n", page)) == [
        (1, "text: places"),
        (9, "page: bar"),
    ]


def test_public_functions_are_verbs(tmp_path: Path) -> None:
    code = (
        "def rounded(): ...\ndef kept(): ...\ndef _kept(): ...\ndef seed(): ...\n"
        "class Two:\n"
        "    def joined(self): ...\n"
        "    @property\n    def shared(self): ...\n"
        "    def rounded_up(self): ...\n"
    )
    assert rules_of(plant(tmp_path, code)) == [
        (1, "participle"),
        (2, "participle"),
        (6, "participle"),
    ]


def test_openings_of_docstrings(tmp_path: Path) -> None:
    code = 'def is_one():\n    """Whether it is."""\n\ndef is_two():\n    """Tell whether."""\n'
    assert rules_of(plant(tmp_path, code)) == [(2, "docstring: Whether")]


def test_no_folder_may_get_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = plant(tmp_path, "place = 1\n")
    assert language.main([], root) == 1
    assert "compiler/one.py:1: name: place: 'place': position" in capsys.readouterr().out
    assert language.main(["--update"], root) == 0
    assert language.main([], root) == 0

    plant(root, "place = 1\nplaces_place = 2\n")
    assert language.main([], root) == 1
    assert language.main(["--update"], root) == 1
    assert "compiler: 2 of 'name: place', 1 allowed:" in capsys.readouterr().out

    plant(root, "position = 1\n")
    assert language.main([], root) == 0
    assert "1 findings fewer" in capsys.readouterr().out
    assert language.main(["--update"], root) == 0
    assert json.loads((root / "tools/language/baseline.json").read_text()) == {}


def test_code_that_moves_takes_its_counts_along(tmp_path: Path) -> None:
    root = plant(tmp_path, "place = 1\n")
    assert language.main(["--update"], root) == 0
    (root / "service").mkdir()
    (root / "compiler/one.py").rename(root / "service/one.py")
    assert language.main([], root) == 1
    assert language.main(["--update"], root) == 0
    assert language.main([], root) == 0


def test_exceptions_have_a_reason(tmp_path: Path) -> None:
    root = plant(tmp_path, "place = 1\n")
    file = root / "tools/language/exceptions.toml"
    entry = '[[exception]]\npath = "compiler/*.py"\nrule = "name: place"\nreason = "{}"\n'
    file.write_text(entry.format("a name of TVM"))
    assert rules_of(root) == []
    file.write_text(entry.format(" "))
    with pytest.raises(ValueError, match="no reason"):
        language.main([], root)
    file.write_text(entry.format("a name of TVM").replace("compiler/", "service/"))
    with pytest.raises(ValueError, match="nothing needs the exception for name: place in service"):
        language.main([], root)


def test_findings_of_a_folder_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = plant(tmp_path, "place = 1\n", "many places\n")
    assert language.main(["docs"], root) == 0
    assert capsys.readouterr().out == "docs/page.md:1: text: places: position\n"


def test_a_glossary_without_rules_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "glossary.md"
    page.write_text("# Glossary\n")
    with pytest.raises(ValueError, match="irregular participle"):
        read_rules(page)


def test_lines_are_those_of_the_file() -> None:
    source = read_python('x = 1\n\n\n#: one\n"""a\nb c"""\n', Path("one.py"))
    assert [(text.line, text.words) for text in source.texts] == [(5, "a\nb c"), (4, ": one")]
    (first, second) = read_page("# A\nb\n\n\nc\n", Path("page.md")).texts
    assert (first.line, second.line, second.words) == (1, 4, "\nc\n")


def test_the_pages_of_this_repository_are_clean() -> None:
    counts = json.loads((language.ROOT / language.HERE / "baseline.json").read_text())
    assert not [folder for folder in counts if folder == "." or folder.startswith("docs")]
