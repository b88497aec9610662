"""`python -m benchmarks.importers`: every engine on ONNX's conformance cases and on every model of
the ONNX zoo with dynamic axes.

Needs `pip install openvino==2026.4.1 iree-base-compiler==3.13.0 iree-base-runtime==3.13.0` beside
the development environment; an engine that is not installed is shown as missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from benchmarks.engines import PACKAGES
from benchmarks.importers import conformance
from tests.zoo.case import Case, feed_of
from tests.zoo.cases import CASES
from tests.zoo.exporting import ExportError
from tests.zoo.measure import reference

ENGINES = ("relaxd", "onnxruntime", "openvino", "tvm", "iree")


def main() -> int:
    """Run the chosen engines on the chosen models, print the table, write JSON and Markdown where
    asked.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.importers", description=__doc__)
    parser.add_argument(
        "--models", nargs="*", default=list(CASES), choices=list(CASES), metavar="CASE"
    )
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument(
        "--timeout", type=float, default=600, help="seconds for one engine on one model"
    )
    parser.add_argument(
        "--no-conformance",
        action="store_true",
        help="leave ONNX's conformance cases out: they take hours for IREE",
    )
    parser.add_argument(
        "--sample", type=int, help="that many of the conformance cases, drawn at random"
    )
    parser.add_argument(
        "--known",
        type=Path,
        help="a folder of reports by tests.conformance, ENGINE_MODE.json, not to be made again",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    reports = (
        []
        if options.no_conformance
        else conformance.measure(
            options.engines, options.timeout / 10, options.sample, options.known
        )
    )
    cases = conformance.markdown(reports)
    print(cases)
    results: dict[str, dict[str, Any]] = {}
    for key in options.models:
        if not CASES[key].installed:
            print(f"{key:24}  {CASES[key].needs} is not installed", flush=True)
            continue
        with TemporaryDirectory(prefix="importers-") as folder:
            try:
                prepare(CASES[key], Path(folder))
            except ExportError as error:
                print(f"{key:24}  not exported: {str(error).splitlines()[-1]}", flush=True)
                continue
            results[key] = {
                engine: trial(engine, Path(folder), options.timeout) for engine in options.engines
            }
        print(
            f"{key:24}",
            *(f"{engine}: {_cell(results[key][engine])}" for engine in options.engines),
            sep="  ",
            flush=True,
        )
    if options.json:
        options.json.write_text(
            json.dumps(
                {"conformance": [report["totals"] for report in reports], "models": results},
                indent=1,
            )
        )
    if options.markdown:
        options.markdown.write_text(f"{cases}\n{markdown(results, options.engines)}")
    return 0


def prepare(case: Case, folder: Path) -> None:
    """Write the subject, seeded inputs at each of the case's points, and ONNX Runtime's answers;
    raises ExportError.
    """
    exported, path = case.export(), folder / "model.onnx"
    onnx.save(declare(onnx.load(exported), case), path)
    feeds = [feed_of(case, exported, point, seed) for seed, point in enumerate(case.points)]
    references = reference(exported, feeds, case.inputs)
    for index, (feed, wanted) in enumerate(zip(feeds, references, strict=True)):
        np.savez(folder / f"feed_{index}.npz", **feed)  # type: ignore[arg-type]
        np.savez(folder / f"want_{index}.npz", **wanted)  # type: ignore[arg-type]
    names = [name for name in feeds[0] if name not in case.consts]
    subject = {
        "path": str(path),
        "names": names,
        "dims": dict(case.dims),
        "inputs": dict(case.inputs),
        "points": len(feeds),
    }
    (folder / "subject.json").write_text(json.dumps(subject))


def declare(model: onnx.ModelProto, case: Case) -> onnx.ModelProto:
    """The model with what the case declares written into it, so that no engine has to guess: names
    of axes, constants.
    """
    for value in list(model.graph.input):
        if value.name in case.consts:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            model.graph.initializer.append(
                onnx.numpy_helper.from_array(np.asarray(case.consts[value.name], dtype), value.name)
            )
            model.graph.input.remove(value)
        elif value.name in case.inputs:
            axes = case.inputs[value.name].partition("[")[2].rstrip("]").split(",")
            for dim, axis in zip(value.type.tensor_type.shape.dim, axes, strict=True):
                dim.CopyFrom(
                    onnx.TensorShapeProto.Dimension(
                        **({"dim_value": int(axis)} if axis.isdigit() else {"dim_param": axis})
                    )
                )
    for value in model.graph.output if case.inputs else ():
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return model


def trial(engine: str, folder: Path, timeout: float) -> dict[str, Any]:
    """One engine on the prepared subject, in a process of its own that may crash or hang."""
    if importlib.util.find_spec(PACKAGES[engine]) is None:
        return {"verdict": "missing"}
    command = [sys.executable, "-m", "benchmarks.importers.trial", engine, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {
            "verdict": "failed",
            "stage": "compile",
            "message": f"no result after {timeout:.0f} s",
        }
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"verdict": "crashed", "message": f"exit status {done.returncode}"}
    return dict(json.loads(lines[-1]))


def _cell(outcome: dict[str, Any]) -> str:
    verdict = str(outcome["verdict"])
    if verdict in ("ok", "wrong"):
        return f"{verdict} ({outcome['error']:.0e})"
    return f"{verdict} at {outcome['stage']}" if "stage" in outcome else verdict


def markdown(results: dict[str, dict[str, Any]], engines: list[str]) -> str:
    """The table, with the failures' messages below."""
    lines = ["| model | " + " | ".join(engines) + " |", "|---|" + "---|" * len(engines)]
    notes = []
    for name, row in results.items():
        lines.append(f"| {name} | " + " | ".join(_cell(row[engine]) for engine in engines) + " |")
        notes += [
            f"- {engine} on {name}: `{row[engine]['message']}`"
            for engine in engines
            if "message" in row[engine]
        ]
    taken = {
        engine: sum(row[engine]["verdict"] == "ok" for row in results.values())
        for engine in engines
    }
    lines.append(
        "| right answers | "
        + " | ".join(f"{taken[engine]} of {len(results)}" for engine in engines)
        + " |"
    )
    return "\n".join(
        [
            *lines,
            "",
            "Worst difference from ONNX Runtime over all shapes, relative to the output's range, "
            "in brackets.",
            "",
            *notes,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
