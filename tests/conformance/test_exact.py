"""Cases that are judged by float64: the definition is onnx's, and a wrong answer is refused."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.conformance import exact
from tests.conformance.cases import Case
from tests.conformance.engines import judge
from tests.conformance.outcomes import Outcome

NAMES = ("test_dft_inverse", "test_dft_inverse_opset19")


def of_onnx(name: str) -> Case:
    """A case of the operator as onnx has it."""
    import_module("onnx.backend.test.case.node.dft")
    node = import_module("onnx.backend.test.case.node")
    result = next(one for one in node._NodeTestCases if one.name == name)
    return Case(
        name, "node", "DFT", result.model, result.data_sets, rtol=result.rtol, atol=result.atol
    )


def outcome(case: Case, output: Any) -> Outcome:
    return judge(case, lambda inputs: [output])[0]


@pytest.mark.parametrize("name", NAMES)
def test_right_numbers_pass_and_noise_of_zero_does_not_decide(name: str) -> None:
    case = of_onnx(name)
    [(_, [wanted])] = exact.data_sets(case)
    assert outcome(case, wanted) is Outcome.OK
    assert outcome(case, wanted + np.float32(case.atol / 2)) is Outcome.OK


@pytest.mark.parametrize("name", NAMES)
def test_expected_numbers_are_onnx_s_within_twice_the_tolerance(name: str) -> None:
    case = of_onnx(name)
    [(_, [theirs])], [(_, [wanted])] = case.data_sets, exact.data_sets(case)
    assert wanted.dtype == theirs.dtype
    np.testing.assert_allclose(theirs, wanted, rtol=2 * case.rtol, atol=2 * case.atol)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_answers_are_refused(name: str) -> None:
    case = of_onnx(name)
    [(inputs, [wanted])] = exact.data_sets(case)
    forward = np.fft.fft(inputs[0][..., 0], axis=1) / 10
    wrong = {
        "a forward transform": np.stack([forward.real, forward.imag], -1).astype("float32"),
        "no scale": wanted * 10,
        "another axis": wanted.swapaxes(1, 2),
        "noise three times the tolerance": wanted + np.float32(3 * case.atol),
        "one number": np.where(np.arange(wanted.size).reshape(wanted.shape) == 7, 1e-3, wanted),
        "float64": wanted.astype("float64"),
        "another shape": wanted[:, :9],
    }
    retained = wanted.dtype
    for what, output in wrong.items():
        output = output if what == "float64" else output.astype(retained)
        assert outcome(case, output) is Outcome.WRONG, what


def test_other_cases_keep_their_numbers() -> None:
    case = of_onnx("test_dft")
    assert exact.data_sets(case) is case.data_sets
