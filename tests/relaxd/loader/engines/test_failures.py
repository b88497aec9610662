"""Messages of checks of the compiled code."""

import pytest

from relaxd.loader.engines.failures import explain

CONSTANT = (
    "Check failed: input_shape[i] == reg (0 vs. 1048576) : {{the mask has an axis of a "
    "where {n} is needed}}  match_cast error,  shape[0]"
)
TENSOR = (
    "Check failed: input_shape[i] == heap_data[reg] (2 vs. 3) : "
    'ErrorContext(match_cast, ty=R.Tensor((1, n), dtype="int64"))  match_cast error,  shape[1] '
    "mismatch to a previous populated value."
)
VECTOR = TENSOR.replace("(1, n)", "(n,)").replace("shape[1]", "shape[0]")


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (CONSTANT, "the mask has an axis of a where {n} is needed; in this call n = 3, a = 2"),
        (
            TENSOR,
            "a tensor that must be int64[1, n] has 2 on axis 1, where 3 is expected; in this call "
            "n = 3, a = 2",
        ),
        (
            VECTOR,
            "a tensor that must be int64[n] has 2 on axis 0, where 3 is expected; in this call n "
            "= 3, a = 2",
        ),
        ("out of memory", "out of memory"),
    ],
)
def test_errors_in_words(error: str, reported: str) -> None:
    assert explain(error, {"n": 3, "a": 2}) == reported


def test_a_model_without_dims() -> None:
    assert explain(CONSTANT, {}).endswith("is needed")
