"""The bounds hold what float32 gives in any order, and little more."""

import numpy as np
import pytest

from tests.support.rounding import assert_matmul_close, error_of_matmul

LEFT = np.array([[1e4, 1, -1e4], [1, 2, 3]], np.float32)
RIGHT = np.array([[1], [0.001], [1]], np.float32)


def test_a_sum_that_cancels_is_held_to_its_operands() -> None:
    assert_matmul_close(LEFT @ RIGHT, LEFT, RIGHT)
    assert_matmul_close((LEFT[:, ::-1] @ RIGHT[::-1]), LEFT, RIGHT)
    large, small = error_of_matmul(LEFT, RIGHT)[:, 0]
    assert large > 1e-3
    assert small < 1e-6


def test_what_quantization_does_not_explain_fails() -> None:
    wrong = LEFT @ RIGHT
    wrong[1, 0] += 1e-5
    with pytest.raises(AssertionError, match=r"at \[1, 0\]"):
        assert_matmul_close(wrong, LEFT, RIGHT)
    wrong[1, 0] = np.nan
    with pytest.raises(AssertionError):
        assert_matmul_close(wrong, LEFT, RIGHT)
