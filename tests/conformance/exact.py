"""Cases whose expected numbers are noise of the float32 that made them, where exact ones are zero:
judged by the operator's definition, computed in float64.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.conformance.cases import Case, DataSet

_INVERSE_DFT = frozenset({"test_dft_inverse", "test_dft_inverse_opset19"})
_AXIS = 1
"""Of the signal, in both cases."""


def data_sets(case: Case) -> Sequence[DataSet]:
    """The case's inputs with the outputs that they have by definition, in the dtypes that the case
    expects; of other cases the data sets as they are.
    """
    if case.name not in _INVERSE_DFT:
        return case.data_sets
    return [
        (inputs, [_inverse_dft(np.asarray(inputs[0])).astype(np.asarray(wanted[0]).dtype)])
        for inputs, wanted in case.data_sets
    ]


def _inverse_dft(x: Any) -> Any:
    """Sums over the axis of x[k] exp(2 pi i k n / N) / N; the last axis has both parts."""
    length = x.shape[_AXIS]
    turns = np.outer(np.arange(length), np.arange(length)) % length / length
    waves = np.exp(2j * np.pi * turns) / length
    signal = x[..., 0].astype("float64") + 1j * x[..., 1].astype("float64")
    result = np.moveaxis(np.tensordot(waves, signal, axes=(1, _AXIS)), 0, _AXIS)
    return np.stack([result.real, result.imag], axis=-1)
