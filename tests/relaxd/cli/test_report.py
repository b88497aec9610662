"""A report of any shape becomes facts and tables."""

from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from relaxd.cli.report import render_report

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
REPORTS = st.dictionaries(
    st.text(max_size=6),
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=8,
    ),
    max_size=4,
)


def render_text(report: dict[str, Any]) -> str:
    out = StringIO()
    Console(file=out, width=300).print(render_report(report))
    return out.getvalue()


def test_facts_then_tables() -> None:
    text = render_text(
        {
            "supported": False,
            "nodes": [{"op": "Add", "why": None}, {"op": "Foo[1]", "why": "no importer"}],
            "dims": {"batch": {"min": 1, "max": None}},
            "error": None,
            "opsets": {"ai.onnx": 19},
        }
    )
    lines = [line.split() for line in text.splitlines() if line.strip()]
    assert lines[0] == ["supported:", "no"]
    assert "error" not in text
    assert ["OP", "WHY"] in lines
    assert ["Foo[1]", "no", "importer"] in lines
    assert ["NAME", "MIN"] in lines, "a column that says nothing is left out"
    assert ["ai.onnx", "19"] in lines


@given(report=REPORTS)
def test_no_report_is_too_odd(report: dict[str, Any]) -> None:
    render_text(report)
