"""Compiles a program, runs it at every size and compares it with torch, in float32 and float64."""

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from compiler.build import build
from compiler.errors import CompileError
from compiler.isolation.messages import CompileJob
from compiler.verify.judge.tolerance import compare, tolerance_of
from relaxd.contract.request import CompileRequest
from relaxd.errors import RelaxdError
from relaxd.loader.opening import load
from tests.fuzz.case import Array
from tests.fuzz.judge import Judgement, Verdict, broken
from tests.fuzz.scripts.source import Script
from tests.support.geometries import builds_for

Question = tuple[Script, str, int]
"""A program, the geometry to build for, and the level at which LLVM optimises."""


def judge(question: Question) -> Judgement:
    """Whose fault it is, if anything is wrong."""
    script, _, _ = question
    torch.set_num_threads(1)
    try:
        module = script_module(script.source)
        want = [run(module, script, rows, torch.float32) for rows in script.rows]
    except RuntimeError as error:
        return Judgement(Verdict.INVALID, str(error)[-300:])
    try:
        result = _ours(module, question)
    except CompileError as error:
        verdict = Verdict.CRASH if broken(error.code) else Verdict.REFUSED
        return Judgement(
            verdict, f"{error.failure.op or error.failure.pass_name}: {error}", error.code
        )
    except RelaxdError as error:
        return Judgement(Verdict.CRASH, str(error), error.code)
    except Exception as error:
        return Judgement(Verdict.CRASH, str(error), type(error).__name__)
    return _compared(module, script, result, want)


def script_module(source: str) -> Any:
    """The program as a module of torch."""
    # Modules of one class share their methods.
    module = torch.jit.script(type("Program", (torch.nn.Module,), {})())
    module.define(source)
    return module


def _feed(script: Script, rows: int) -> dict[str, Array]:
    random = np.random.default_rng((script.seed, rows))
    return {name: random.standard_normal((rows, script.columns)).astype("float32") for name in "xy"}


def run(module: Any, script: Script, rows: int, dtype: torch.dtype) -> list[Array]:
    """The program's results in torch, computed in the dtype."""
    feed = [torch.from_numpy(array).to(dtype) for array in _feed(script, rows).values()]
    with torch.no_grad():
        return [output.to(torch.float32).numpy() for output in module(*feed)]


def _ours(module: Any, question: Question) -> list[list[Array]]:
    (script, geometry, llvm), saved = question, io.BytesIO()
    torch.jit.save(module, saved)
    spec = f"float32[n,{script.columns}]"
    request = CompileRequest.of(
        dims={"n": (min(script.rows), max(script.rows))},
        inputs={"x": spec, "y": spec},
        targets=("native",),
        options={"verify": False, "profile": False},
    )
    with tempfile.TemporaryDirectory(prefix="relaxd-fuzz-") as folder:
        path, bundle = Path(folder) / "model.pt", Path(folder) / "bundle"
        path.write_bytes(saved.getvalue())
        with builds_for(geometry, llvm):
            build(CompileJob(str(path), request.to_json(), "native", str(bundle), "model"))
        model = load(bundle, threads=1)
        return [list(model.run(_feed(script, rows)).values()) for rows in script.rows]


def _compared(
    module: Any, script: Script, result: list[list[Array]], want: list[list[Array]]
) -> Judgement:
    apart = _apart(script, result, want)
    if not apart:
        return Judgement(Verdict.RIGHT, runs=len(script.rows))
    exact = [run(module, script, rows, torch.float64) for rows in script.rows]
    mine, theirs = _apart(script, result, exact), _apart(script, want, exact)
    verdict = Verdict.BOTH if mine and theirs else Verdict.OURS if mine else Verdict.RUNTIME
    return Judgement(verdict, mine or theirs or apart, runs=len(script.rows))


def _apart(script: Script, got: list[list[Array]], want: list[list[Array]]) -> str:
    tolerance = tolerance_of("float32", None, None)
    for rows, mine, theirs in zip(script.rows, got, want, strict=True):
        for position, (left, right) in enumerate(zip(mine, theirs, strict=True)):
            problem = compare(left, right, tolerance).problem
            if problem:
                return f"output {position} at n={rows}: {problem}"
    return ""
