"""`python -m benchmarks.standalone`: libraries that need no runtime beside those on TVM's virtual
machine, ONNX Runtime, onnxruntime-web and TensorFlow Lite: sizes, loads, overheads, times.

Everything computes on one thread, engines in turns, by processor time. The part `threads`, of
WebAssembly with one thread and with two, and everything in headless Chromium go by the clock and
want an idle machine. `--web FOLDER` names one where `npm install onnxruntime-web @litertjs/core`
was run; `--target webgpu` runs on Chromium's software adapter.
TensorFlow Lite takes part where `ai-edge-litert` is installed, on small nets that `nets.py` writes
in both formats.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.standalone import calls, lite, native, web
from benchmarks.standalone.hosts import HOSTS
from benchmarks.standalone.subjects import SUBJECTS, WEB, WEB_SUBJECTS, WEB_TARGETS, Subject

PARTS = ("sizes", "calls", "loads", "native", "lite", "web", "litert", "threads")
_OF_WEB = ("web", "threads")
"""The parts that take every model; the others take those with shapes of their own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for each part."""
    options = _parser().parse_args(arguments)
    chosen = _choose(options.models)
    result: dict[str, Any] = {}
    with TemporaryDirectory(prefix="standalone-") as folder:
        work = options.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        for part in options.parts:
            subjects = chosen if part in _OF_WEB else [one for one in chosen if one.shapes]
            result[part] = _PARTS[part](subjects, work, options)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1, default=_plain) + "\n")
    return 0


def _choose(names: Sequence[str]) -> list[Subject]:
    """The models of these names; those whose package is not installed are left out, and named."""
    chosen = [subject for subject in WEB_SUBJECTS if subject.name in names]
    for subject in chosen:
        if subject.lacking:
            print(f"{subject.name} needs {subject.lacking}, left out\n")
    return [subject for subject in chosen if not subject.lacking]


def _sizes(subjects: list[Subject], work: Path, options: argparse.Namespace) -> list[Any]:
    rows = []
    for subject in subjects:
        ours, machine = native.sizes(subject, work)
        module, packed = web.sizes(subject, work)
        rows.append((subject.name, ours, machine, f"{ours / machine:.2f}", module, packed))
    _table(("", "model.so", "with the runtime", "ratio", "model.wasm", "gzipped"), rows)
    return rows


def _calls(subjects: list[Subject], work: Path, options: argparse.Namespace) -> dict[str, float]:
    (subject,) = [subject for subject in SUBJECTS if subject.key is None]
    results = {"C": calls.from_c(subject, work)}
    results |= calls.from_python(subject, work, options.rounds)
    _table(("call of the MLP", "us"), [(name, f"{s * 1e6:.2f}") for name, s in results.items()])
    return results


def _loads(subjects: list[Subject], work: Path, options: argparse.Namespace) -> list[Any]:
    rows = []
    for subject in subjects:
        for flavour in ("standalone", "vm"):
            start = calls.starts(subject, work, flavour)
            times = (start.load, start.load - start.weights, start.another, start.first)
            rows.append((subject.name, flavour, *(f"{s * 1e3:.2f}" for s in times)))
    head = ("load, ms", "without the weights' sha256", "another", "first call beyond a second")
    _table(("", "flavour", *head), rows)
    return rows


def _native(subjects: list[Subject], work: Path, options: argparse.Namespace) -> list[Any]:
    rows = [row for one in subjects for row in native.rows(one, work, options.rounds)]
    cells = [
        (r.where, f"{r.standalone * 1e6:.1f}", f"{r.by_machine:.2f}", f"{r.by_onnxruntime:.2f}")
        for r in rows
    ]
    _table(("", "us", "to the virtual machine", "to ONNX Runtime"), cells)
    print(
        f"geometric means: {_mean(r.by_machine for r in rows)}, "
        f"{_mean(r.by_onnxruntime for r in rows)}\n"
    )
    return rows


def _lite(subjects: list[Subject], work: Path, options: argparse.Namespace) -> list[Any]:
    if not lite.present():
        print("ai-edge-litert is not installed, left out\n")
        return []
    rows = lite.rows(work, options.rounds)
    _table(
        ("", "us", "to TensorFlow Lite"),
        [(row.where, f"{row.seconds * 1e6:.1f}", f"{row.by_lite:.2f}") for row in rows],
    )
    print(f"geometric mean: {_mean(row.by_lite for row in rows)}\n")
    return rows


def _web(subjects: list[Subject], work: Path, options: argparse.Namespace) -> dict[str, Any]:
    results = {}
    for host in options.hosts:
        rows = web.rows(subjects, work, options.rounds, options.web, host, options.target)
        cells = [
            (row.where, f"{row.seconds * 1e6:.1f}", f"{row.by_peer:.2f}" if row.by_peer else "")
            for row in rows
        ]
        _table((f"in {host}", "us", "to onnxruntime-web"), cells)
        ratios = [row.by_peer for row in rows if row.by_peer]
        print(f"geometric mean: {_mean(ratios)}\n" if ratios else "")
        results[host] = rows
    return results


def _litert(subjects: list[Subject], work: Path, options: argparse.Namespace) -> list[Any]:
    if options.web is None or not lite.present():
        print("--web FOLDER or ai-edge-litert, which writes the nets, is missing: left out\n")
        return []
    rows = web.lite_rows(lite.write_nets(work), work, options.rounds, options.web)
    cells = [(row.where, f"{row.seconds * 1e6:.1f}", f"{row.by_peer:.2f}") for row in rows]
    _table(("in Chromium", "us", "to LiteRT.js"), cells)
    print(f"geometric mean: {_mean(row.by_peer for row in rows if row.by_peer)}\n")
    return rows


def _threads(subjects: list[Subject], work: Path, options: argparse.Namespace) -> dict[str, Any]:
    results = {}
    for host in options.hosts:
        rows = web.thread_rows(subjects, work, options.rounds, options.web, host)
        cells = []
        for row in rows:
            theirs = (
                (f"{row.peer_one / row.peer_two:.2f}", f"{row.two / row.peer_two:.2f}")
                if (row.peer_one and row.peer_two)
                else ("", "")
            )
            cells.append((row.where, f"{row.two * 1e6:.1f}", f"{row.gain:.2f}", *theirs))
        head = ("us", "one thread by two", "onnxruntime-web's", "to two of it")
        _table((f"in {host}, two threads", *head), cells)
        print(f"geometric mean: {_mean(row.gain for row in rows)}\n")
        results[host] = rows
    return results


_PARTS = {
    "sizes": _sizes,
    "calls": _calls,
    "loads": _loads,
    "native": _native,
    "lite": _lite,
    "web": _web,
    "litert": _litert,
    "threads": _threads,
}


def _mean(ratios: Iterable[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.2f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    for cells in (head, ("---",) * len(head), *rows):
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print()


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(type(value))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standalone", description=__doc__)
    names = [subject.name for subject in WEB_SUBJECTS]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--hosts", nargs="+", choices=HOSTS, default=list(HOSTS), help="of the parts web, threads"
    )
    parser.add_argument(
        "--target", choices=WEB_TARGETS, default=WEB, help="of the part web: what ours is built for"
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--work", type=Path, help="keep the bundles here")
    parser.add_argument("--web", type=Path, help="where the packages of npm are installed")
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
