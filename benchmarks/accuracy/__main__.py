"""`python -m benchmarks.accuracy`: errors of relaxd, ONNX Runtime and OpenVINO against float64, of
the kernel kinds and of the models of the wide benchmark, on the same inputs.

Needs `pip install openvino==2026.4.1` beside the development environment; an engine or model whose
package is not installed is left out and named. `--regenerate` writes docs/performance: the section
of accuracy.md, and accuracy.json. No times are measured, so the machine may be busy.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import documents
from benchmarks.accuracy import page
from benchmarks.accuracy.errors import ENGINES, measure
from benchmarks.accuracy.kinds import kinds
from benchmarks.accuracy.subject import Subject, model_subject
from benchmarks.cpu import subjects
from benchmarks.cpu.rows import ROWS
from benchmarks.engines import PACKAGES
from tests.zoo.exporting import ExportError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a subject, then the means; write JSON and the page where asked."""
    options = _parser().parse_args(arguments)
    if options.regenerate:
        options.json = page.FILE
    names = [engine for engine in ENGINES if importlib.util.find_spec(PACKAGES[engine])]
    print(
        *(f"not installed, left out: {engine}" for engine in ENGINES if engine not in names),
        sep="\n",
    )
    document = page.resume(options.json if options.resume else None, page.begin(names))
    for subject in _subjects(options):
        try:
            row = measure(subject, names)
        except RuntimeError as error:
            print(f"{subject.name} left out: no engine has float64 for it: {error}", flush=True)
            continue
        document = page.with_row(document, row)
        print(page.line(row), flush=True)
        if options.json:
            documents.write(document, options.json)
    print(*page.means(document["rows"]), sep="\n")
    if options.regenerate:
        page.regenerate(document)
    return 0


def _subjects(options: argparse.Namespace) -> Iterator[Subject]:
    if not options.models or options.only:
        for kind in kinds():
            if options.only in f"{kind.group} {kind.name}":
                yield kind.subject()
    if options.only:
        return
    for name in options.models or list(ROWS):
        if package := subjects.missing_package(name):
            print(f"{name} left out: the package {package} is not installed")
            continue
        try:
            yield model_subject(name)
        except (ExportError, FileNotFoundError) as error:
            print(f"{name} left out: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    add = parser.add_argument
    add("--only", default="", help="kernel kinds with this in their group or name, and no models")
    add("--models", nargs="*", default=[], choices=list(ROWS), metavar="NAME", help="and no kinds")
    add("--json", type=Path)
    add("--resume", action="store_true", help="keep the file's rows of subjects not measured")
    add("--regenerate", action="store_true", help="write docs/performance: page and JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
