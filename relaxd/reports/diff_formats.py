"""Writes a comparison for pull requests and for machines in CI: Markdown, JUnit, SARIF."""

import json
from collections.abc import Callable, Iterable, Mapping
from xml.etree import ElementTree

from relaxd.contract.bundle.diff import BuildDiff, Change
from relaxd.contract.dims.dims import point_text


def markdown(diff: BuildDiff) -> str:
    """Gates first, then tables of what changed."""
    rows: list[tuple[str, ...]]
    parts = [f"### {_cell(diff.base)} → {_cell(diff.head)}"]
    if diff.gates:
        rows = [("failed" if gate.failed else "held", gate.gate, gate.said) for gate in diff.gates]
        parts.append(_table(("", "gate", "found"), rows))
    if diff.not_run:
        parts.append(f"Neither build was run: {_cell(diff.not_run)}")
    if diff.latency:
        rows = [
            (
                point_text(one.dims),
                f"{one.base_ms:.3g}",
                f"{one.head_ms:.3g}",
                f"{one.ratio - 1:+.1%} ({one.low - 1:+.1%} to {one.high - 1:+.1%})",
            )
            for one in diff.latency
        ]
        parts.append(_table(("dims", "base ms", "head ms", "slower by"), rows))
    if diff.outputs:
        rows = [
            (
                one.name,
                point_text(one.dims),
                f"{one.max_abs:.2g}",
                f"{one.mean_abs:.2g}",
                f"{one.cosine:.6f}",
                "" if one.argmax_agreement is None else f"{one.argmax_agreement:.2%}",
            )
            for one in diff.outputs
        ]
        parts.append(_table(("output", "dims", "max", "mean", "cosine", "argmax equal"), rows))
    for title, changes in sections(diff):
        if rows := [(one.name, _text(one.base), _text(one.head)) for one in changes]:
            parts.append(_table((title, "base", "head"), rows))
    return "\n\n".join(parts) + "\n"


def sections(diff: BuildDiff) -> Iterable[tuple[str, tuple[Change, ...]]]:
    """The changes by heading; equal sizes are left out."""
    yield "bytes", tuple(one for one in diff.sizes if one.base != one.head)
    yield "kernel", diff.kernels
    yield "slower kernel, ms", diff.slower
    yield "node, by kernels", diff.nodes
    yield "dim", diff.dims
    yield "option", diff.options
    yield "tool", diff.toolchain


def junit(diff: BuildDiff) -> str:
    """A test case a gate."""
    failures = str(sum(gate.failed for gate in diff.gates))
    suite = ElementTree.Element(
        "testsuite", name="relaxd diff", tests=str(len(diff.gates)), failures=failures
    )
    for gate in diff.gates:
        case = ElementTree.SubElement(
            suite, "testcase", name=gate.gate, classname=f"relaxd.diff.{diff.head}"
        )
        if gate.failed:
            ElementTree.SubElement(case, "failure", message=gate.said)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def sarif(diff: BuildDiff) -> str:
    """A result a failed gate, in SARIF 2.1.0."""
    results = [
        {
            "ruleId": gate.gate,
            "level": "error",
            "message": {"text": f"{diff.head}: {gate.gate}: {gate.said}"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": "relaxd.toml"}}}],
        }
        for gate in diff.gates
        if gate.failed
    ]
    rules = [{"id": gate.gate} for gate in diff.gates]
    driver = {"name": "relaxd diff", "informationUri": "https://tvm.apache.org", "rules": rules}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, indent=2) + "\n"


def _json(diff: BuildDiff) -> str:
    return json.dumps(diff.to_json(), indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[BuildDiff], str]] = {
    "md": markdown,
    "json": _json,
    "junit": junit,
    "sarif": sarif,
}


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _text(value: object) -> str:
    return "" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
