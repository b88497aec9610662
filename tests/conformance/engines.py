"""The engines that cases run through: relaxd's own build and loader, and ONNX Runtime beside it."""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import CompileError
from compiler.ir.graph.draws import SEED
from compiler.ir.onnx.model.item_names import join_items, split_items
from compiler.isolation.messages import CompileJob
from compiler.verify.reference import onnx as reference
from relaxd.contract.options import Flavour
from relaxd.contract.request import CompileRequest
from relaxd.errors import RelaxdError
from relaxd.loader.model import Model
from relaxd.loader.opening import load
from tests.conformance import exact, laws
from tests.conformance.cases import Case
from tests.conformance.modes import Mode, request
from tests.conformance.outcomes import Outcome
from tests.support import geometries

Ran = tuple[Outcome, str]

_INTERNAL = ("internal", "failed", "crashed", "out_of_memory")


def relaxd(case: Case, mode: Mode, target: str = "native") -> Ran:
    """Build as `compile_model` does, load as a user does, compare as onnx's runner does."""
    return _built(case, request(case, mode), target)


def machine(case: Case, mode: Mode, target: str = "native") -> Ran:
    """Run as `relaxd` does, on TVM's virtual machine."""
    asked = request(case, mode)
    options = dataclasses.replace(asked.options, flavour=Flavour.VM)
    return _built(case, dataclasses.replace(asked, options=options), target)


def _built(case: Case, asked: CompileRequest, target: str) -> Ran:
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        path, bundle = Path(folder) / "model.onnx", Path(folder) / "bundle"
        path.write_bytes(case.model.SerializeToString())
        try:
            geometries.build_at(
                CompileJob(str(path), asked.to_json(), target, str(bundle), case.name)
            )
        except CompileError as error:
            outcome = (
                Outcome.ERROR if error.code.rpartition(".")[2] in _INTERNAL else Outcome.REFUSED
            )
            return outcome, f"{error.code}: {_write_model(error)}{error}"
        try:
            model = load(bundle, threads=1)
            if laws.random(case):
                fault = laws.broken(
                    case, lambda inputs, seed: _random_inputs(model, case, inputs, seed)
                )
                return (Outcome.WRONG, fault) if fault else (Outcome.OK, "")
            return judge(case, lambda inputs: _outputs(model, case, inputs))
        except RelaxdError as error:
            return Outcome.ERROR, f"{error.code}: {error}"


def _outputs(model: Model, case: Case, inputs: Sequence[Any]) -> list[Any]:
    """In the order of the case's outputs; an empty list is a sequence without items."""
    created = model.run(split_items(name_values(case, inputs)))
    result = join_items(created, [output.name for output in case.model.graph.output])
    return [[] if value is None else value for value in result.values()]


def _random_inputs(model: Model, case: Case, inputs: Sequence[Any], seed: int) -> list[Any]:
    arguments = {**name_values(case, inputs), SEED.name: np.asarray(seed)}
    return list(model.run(arguments).values())


def onnxruntime(case: Case, mode: Mode) -> Ran:
    """ONNX Runtime on the same model; dynamic: with nothing said about its shapes."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(case.model.SerializeToString())
        asked = request(case, mode)
        try:
            engine = reference.OnnxRuntime(
                str(reference.prepare(case.model, path, asked, Path(folder), widen=False).path)
            )
        except Exception as error:
            return Outcome.REFUSED, line(error)
        try:
            return judge(
                case, lambda inputs: list(engine.run(name_values(case, inputs), {}).values())
            )
        except Exception as error:
            return Outcome.ERROR, line(error)


def judge(case: Case, run: Callable[[Sequence[Any]], list[Any]]) -> Ran:
    """Compared by onnx's own runner: number of outputs, shapes, dtypes, then the case's
    tolerances.
    """
    from onnx.backend.test.runner import Runner

    for inputs, wanted in exact.data_sets(case):
        outputs = run(inputs)
        if _lengths(outputs) != _lengths(wanted):
            # onnx's runner looks at no more items than there are.
            return Outcome.WRONG, f"sequences have {_lengths(outputs)} items"
        try:
            Runner.assert_similar_outputs(wanted, outputs, rtol=case.rtol, atol=case.atol)
        except (AssertionError, TypeError) as error:
            return Outcome.WRONG, line(error)
    return Outcome.OK, ""


def _lengths(values: Sequence[Any]) -> list[int | None]:
    """How many items each sequence has, None for other outputs."""
    return [len(value) if isinstance(value, list) else None for value in values]


def name_values(case: Case, inputs: Sequence[Any]) -> dict[str, Any]:
    """A data set's inputs by name."""
    names = [value.name for value in case.inputs]
    return {
        name: value if value is None or isinstance(value, list) else np.asarray(value)
        for name, value in zip(names, inputs, strict=False)
    }


def _write_model(error: CompileError) -> str:
    return f"{error.failure.op}: " if error.failure.op else ""


def line(error: BaseException) -> str:
    """The error in one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
