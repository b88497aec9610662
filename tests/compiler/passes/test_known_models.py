"""Every tensor program of the known models gets loops of ours, or is listed with the reason why
not. `make geometry` adds ResNet-50, which torch exports first: three times the processor time of
all others.
"""

import os
from typing import Any

import pytest
from tvm import tirx

from compiler import targets
from compiler.ir import import_model
from compiler.ir.files.model_file import read_model
from compiler.passes.cpu.schedule import ScheduleKernels, choose
from compiler.passes.manager import to_kernels
from relaxd.contract.request import CompileRequest
from tests.support.models.known import MODELS, path_of

pytestmark = pytest.mark.slow

KNOWN = (
    pytest.param("minilm", marks=pytest.mark.long),
    *(("resnet50",) if os.environ.get("RELAXD_GEOMETRIES") == "all" else ()),
    "ppocr_det",
    "ppocr_rec",
    "ppocr_cls",
    "magika",
    "silero_vad",
    "silero_vad_16k_op15",
)
OTHERS = {"check_indices": "comes with its loop, over the indices alone"}
"""Programs without a schedule, and why."""


@pytest.mark.parametrize("name", KNOWN)
def test_no_program_is_left_without_a_schedule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def emit(self: ScheduleKernels, program: Any) -> Any:
        # What it emits is tested elsewhere, and takes most of the time.
        return choose(program, self.unit), tirx.Evaluate(tirx.IntImm("int64", 0))

    monkeypatch.setattr(ScheduleKernels, "_emit", emit)
    imported = import_model(
        read_model(path_of(name)).proto, CompileRequest.from_json(MODELS[name].request())
    )
    scheduled = to_kernels(imported.module, targets.resolve("x86-64-v3"), imported.ranges)
    programs = {
        gvar.name_hint: func
        for gvar, func in scheduled.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    left = {kernel for kernel, func in programs.items() if "tirx.is_scheduled" not in func.attrs}
    assert programs
    assert {kernel.rstrip("0123456789") for kernel in left} <= OTHERS.keys()
