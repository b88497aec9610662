"""A library's error beside those of references that round the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import VerifyError
from compiler.verify import report, uncertainty
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Signature, Trial
from compiler.verify.inputs.points import Point
from compiler.verify.quantization_changes import (
    PRECISION,
    QuantizationErrors,
    changes,
    check_likeness,
)
from compiler.verify.sides import Answered, Budget, Reference
from compiler.verify.uncertainty import Answers, Quantization
from relaxd.contract.options import CompileOptions, Precision
from tests.support import declared

SIGNATURE = Signature((), (declared.spec("y=float32[n]"), declared.spec("i=int64[n]")), (), {})
OPTIONS = CompileOptions(precision=Precision.INT8)
SIDES = ("reference", "nudged0", "nudged1")


def trial(folder: Path, library: float, expected: float, elements: int = 4096) -> Trial:
    """Outputs whose errors have those deviations, and integers that differ on every side."""
    compared = Trial(0, Point("one", {"n": elements}), folder / "0.inputs.arrays", 0)
    random = np.random.default_rng(elements)
    want = random.standard_normal(elements).astype("float32")
    apart = {PRECISION.side: 0.0, "library": library, **dict.fromkeys(SIDES, expected)}
    for power, (side, error) in enumerate(apart.items()):
        values = want + np.float32(error) * random.standard_normal(elements).astype("float32")
        array_file.write(compared.outputs(side), {"y": values, "i": np.full(elements, 10**power)})
    return compared


def check(compared: Trial) -> None:
    errors = QuantizationErrors(SIGNATURE, PRECISION)
    document = {"precision": changes([compared], errors, OPTIONS)}
    check_likeness([compared], errors, SIDES, document, OPTIONS)


def test_equal_roundings_have_equal_errors(tmp_path: Path) -> None:
    check(trial(tmp_path, 0.1, 0.1))
    check(trial(tmp_path, 0.11, 0.1))
    check(trial(tmp_path, 0.0, 0.1))
    check(trial(tmp_path, 2e-5, 0.0))


def test_a_greater_error_than_quantization_explains_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VerifyError) as raised:
        check(trial(tmp_path, 0.14, 0.1))
    assert raised.value.code == "verify.beyond_rounding"
    assert "'y' is 0.138 of its values" in raised.value.message
    assert raised.value.failure.details["numerics"]["precision"]["form"] == "int8"


@pytest.mark.parametrize("expected", [0.13, 0.1])
def test_all_references_are_asked_before_a_library_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: float
) -> None:
    compared, asked = trial(tmp_path, 0.14, 0.1), list[str]()
    side = compared.outputs("nudged1")
    (tmp_path / "other").mkdir()
    side.write_bytes(trial(tmp_path / "other", 0.14, expected).outputs("nudged1").read_bytes())

    def ask(reference: Any, trials: Any, folder: Path, budget: Budget, side: str) -> Answered:
        asked.append(side)
        return Answered("an engine", list(trials), [])

    for module in (report, uncertainty):
        monkeypatch.setattr(module, "ask_reference", ask)
    reference = Reference(tmp_path / "model.onnx", {})
    moved = dict.fromkeys(SIDES[1:], reference)
    known = Answers(perturbed={0: ("nudged0",)}, quantizing=moved)
    part = Quantization(reference, PRECISION, (reference,) * 2)
    document: dict[str, Any] = {}
    arguments = (part, [compared], SIGNATURE, OPTIONS, known, tmp_path, Budget())
    if expected == 0.13:
        report.state_changes(document, *arguments)
    else:
        with pytest.raises(VerifyError, match="it should be"):
            report.state_changes(document, *arguments)
    assert asked == [PRECISION.side, "nudged1"]
    assert document["precision"]["error"] > 0.13


def test_a_few_elements_may_be_further_apart(tmp_path: Path) -> None:
    check(trial(tmp_path, 0.14, 0.1, elements=32))
    with pytest.raises(VerifyError):
        check(trial(tmp_path, 0.4, 0.1, elements=32))
