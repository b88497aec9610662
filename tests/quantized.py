"""How models that quantize are compared without perturbed references, as the fuzzer and the zoo
have many of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from compiler.verify.judge.tolerance import Difference, Tolerance, compare, tolerance_of
from relaxd.contract.dims.tensors import STORAGE

_FLOATS = Tolerance(0.25, 0.0)
_MEAN = 0.03
"""A sum that falls on the other side of a half moves an integer by a step, and what follows it with
it: floats are held in the mean. ONNX Runtime's own optimisation levels differ by 7 % of the range,
1.2 % in the mean, on MiniLM."""


def compare_quantized(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> Difference:
    """Small integers may be one step off, floats a quarter of the range, and in the mean a few
    hundredths.
    """
    dtype = str(want.dtype)
    if "float" not in dtype or dtype in STORAGE:
        return compare(got, want, tolerance_of(dtype, None, None, quantized=True))
    difference = compare(got, want, _FLOATS)
    if difference.problem or not want.size:
        return difference
    finite = np.isfinite(want)
    apart = np.abs(got[finite].astype(np.float64) - want[finite].astype(np.float64))
    share = float(apart.mean()) / difference.range if difference.range else 0.0
    if share <= _MEAN:
        return difference
    return replace(difference, problem=f"the mean difference is {share:.1%} of the range")
