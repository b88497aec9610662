import numpy as np

from tests.quantized import compare_quantized


def test_floats_of_quantised_models_are_held_in_the_mean() -> None:
    want = np.linspace(-1, 1, 100, dtype=np.float32)
    one_off = want.copy()
    one_off[3] += 0.2
    assert compare_quantized(one_off, want).problem is None
    assert "mean difference is 5.0% of the range" in (
        compare_quantized(want + np.float32(0.05), want).problem or ""
    )
    assert compare_quantized(one_off + np.float32(0.1), want).problem is not None


def test_integers_may_be_a_step_off() -> None:
    want = np.array([1, 2], np.uint8)
    assert compare_quantized(want + np.uint8(1), want).problem is None
    assert compare_quantized(want + np.uint8(2), want).problem is not None
