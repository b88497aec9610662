"""Sizes, comments and import cycles of a tree, on a tiny one."""

import subprocess
from pathlib import Path

import pytest

from tools import structure

NOBODY = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
TREE = {
    "house/__init__.py": "",
    "house/cellar/__init__.py": "from house.attic.roof import tiles\n",
    "house/cellar/wine.py": "import numpy\n",
    "house/attic/__init__.py": "",
    "house/attic/roof.py": "tiles = 1\n",
    "house/attic/beams.py": "def hold():\n    from ..garden import tree\n    return tree\n",
    "house/garden/__init__.py": "",
    "house/garden/tree.py": "leaves = 3\n",
}


def plant(folder: Path, **changed: str) -> Path:
    """The tree as files; changed: contents of further or other files, by path with `__` for `/`."""
    changes = {path.replace("__", "/") + ".py": text for path, text in changed.items()}
    for name, text in {**TREE, **changes}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = structure.main(folder, ("house",), ())
    return status, capsys.readouterr().out


def test_a_tree_without_fault_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(plant(tmp_path), capsys)
    assert (status, "no import cycles between folders" in text) == (0, True)
    assert max(map(len, text.splitlines())) <= 100


def test_lines_are_compared_with_a_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = plant(tmp_path)
    for command in (["init", "-q"], ["add", "."], [*NOBODY, "commit", "-q", "-m", "trees"]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    (tree / "house/garden/tree.py").write_text("leaves = 3\n" * 5)
    (tree / "house/attic/roof.py").unlink()
    structure.main(tree, ("house",), ("--since", "HEAD"))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    changes = {row[0]: row[2:4] for row in reversed(rows) if row}
    assert changes["house"] == ["10", "+3"]
    assert changes["house.garden"] == ["5", "+4"]
    assert changes["house.attic"] == ["3", "-1"]


def test_a_planted_cycle_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """cellar -> attic -> garden -> cellar, one of them inside a function and one relative."""
    tree = plant(tmp_path, house__garden__tree="import house.cellar.wine\n")
    status, text = run(tree, capsys)
    assert status == 1
    assert "import cycle: house.attic, house.cellar, house.garden\n" in text


def test_a_circle_of_types_inside_a_folder_is_none(tmp_path: Path) -> None:
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.{}\n"
    inside = plant(
        tmp_path,
        house__door=guarded.format("wall"),
        house__wall="import house.door\n",
    )
    assert not structure.cycles(structure.unit_graph(list(structure.read(inside, "house"))))
    between = plant(tmp_path, house__garden__tree=guarded.format("cellar"))
    assert structure.cycles(structure.unit_graph(list(structure.read(between, "house"))))


def test_long_files_and_functions_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "    x = 1\n" * 30
    tree = plant(tmp_path, house__long="y = 1\n" * 601, house__slow=f"def slow():\n{body}" * 9)
    status, text = run(tree, capsys)
    assert status == 1
    assert "house.long: 601 lines, over 600" in text
    assert "house: functions' p90 is 31 lines, over 25" in text


def test_comments_are_counted_against_code(tmp_path: Path) -> None:
    source = '''"""Doc."""

# Why: said
# on two lines.
def add(a, b):
    """Doc
    string."""
    return (a +  # at the end of code
            b)
'''
    path = tmp_path / "one.py"
    path.write_text(source)
    module = structure.read_module(path, "one")
    assert (module.code, module.comments, module.functions, module.lines) == (3, 2, (5,), 9)


@pytest.mark.parametrize(("percent", "size"), [(50, 5), (90, 9), (100, 10)])
def test_ranks_are_sizes_that_occur(percent: int, size: int) -> None:
    assert structure.rank(range(10, 0, -1), percent) == size
