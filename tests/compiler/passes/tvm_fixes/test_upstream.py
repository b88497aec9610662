"""Every repair says where the fault is reported, and when the repair can go."""

import ast
from pathlib import Path

import pytest

import compiler.passes.tvm_fixes

MODULES = sorted(Path(compiler.passes.tvm_fixes.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_repair_names_its_report_upstream_and_its_end(path: Path) -> None:
    documentation = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = documentation.rpartition("\n\n")[2]
    assert paragraph.startswith("Upstream: ")
    assert "#" in paragraph or "no report" in paragraph
    assert "can go" in " ".join(paragraph.split())
