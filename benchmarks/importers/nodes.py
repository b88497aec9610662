"""Peers on ONNX's conformance cases: the engines that `tests.conformance` runs beside relaxd and
ONNX Runtime.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx

from benchmarks.engines import ENGINES, Subject
from tests.conformance.cases import Case
from tests.conformance.engines import Ran, judge, line, name_values
from tests.conformance.modes import Mode, request
from tests.conformance.outcomes import Outcome


def peer(engine: str, case: Case, mode: Mode) -> Ran:
    """`engine` on the model with the mode's axes; refused where it does not compile, error where it
    does not run.
    """
    with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(_declared(case, mode).SerializeToString())
        names = tuple(value.name for value in case.inputs)
        try:
            run = ENGINES[engine](Subject(path, names, threads=1))
        except subprocess.CalledProcessError as error:
            return Outcome.REFUSED, " ".join(str(error.stderr).split())[:300]
        except Exception as error:
            return Outcome.REFUSED, line(error)
        try:
            return judge(case, lambda inputs: run(name_values(case, inputs)))
        except Exception as error:
            return Outcome.ERROR, line(error)


def _declared(case: Case, mode: Mode) -> onnx.ModelProto:
    """A copy whose redeclared inputs name each open axis; outputs that could contradict them say
    nothing of their shape.
    """
    declared = {spec.name: spec.shape for spec in request(case, mode).inputs}
    if not declared:
        return case.model
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.value_info[:]
    for entry in model.graph.input:
        for dim, axis in zip(
            entry.type.tensor_type.shape.dim, declared.get(entry.name, ()), strict=False
        ):
            dim.Clear()
            if axis.size is None:
                dim.dim_param = axis.text
            else:
                dim.dim_value = axis.size
    for entry in model.graph.output:
        for dim in entry.type.tensor_type.shape.dim:
            dim.Clear()
    return model


tvm: Callable[[Case, Mode], Ran] = partial(peer, "tvm")
iree: Callable[[Case, Mode], Ran] = partial(peer, "iree")
openvino: Callable[[Case, Mode], Ran] = partial(peer, "openvino")
