"""Mixtures of experts and states of tokens through every pass, at the geometries of other
processors, against ONNX Runtime: each at two of them, and at all four by `make geometry`.
"""

import os
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from tests.compiler.ir.onnx.operators import test_experts as experts
from tests.compiler.ir.onnx.operators import test_token_state as states
from tests.compiler.ir.onnx.running import Arrays, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime
from tests.support.geometries import GEOMETRIES, geometry

pytestmark = pytest.mark.slow

TOKENS = (1, 2, 3, 5, 15, 16, 17, 31, 33, 64)
Case = tuple[onnx.ModelProto, list[Any], dict[str, Any]]


def floats() -> Case:
    """Panels of 32 columns of which the last is part full, blocks of four rows."""
    model = experts.mixture("MoE", experts.TOKENS, experts.floats(2, 41), k=2, **experts.SWIGLU)
    return model, list(experts.feeds(*TOKENS)), {"t": (1, 64)}


def int4() -> Case:
    """Four bits, a scale and zero point for each block of 16."""
    weights = experts.pack_weights(4, 16, True)
    model = experts.mixture("QMoE", experts.TOKENS, weights, k=3, block_size=16, **experts.SWIGLU)
    return model, list(experts.feeds(*TOKENS)), {"t": (1, 64)}


def columns() -> Case:
    """Eight bits, a scale for each column, no gates, part of a panel."""
    weights = experts.pack_weights(8, 0, False, parts=1, inner=20)
    model = experts.mixture(
        "QMoE", experts.TOKENS, weights, k=1, expert_weight_bits=8, activation_type="silu"
    )
    return model, list(experts.feeds(*TOKENS)), {"t": (1, 64)}


def convolution() -> Case:
    """Channels that fill no vector, taps two apart."""
    before, channels = (states.TAPS - 1) * 2, states.CHANNELS
    inputs = {"x": f"float32[n,{channels},s]", "p": f"float32[n,{channels},{before}]"}
    model = states.conv(inputs, "x w c p", dilation=2, activation="silu")
    feeds: list[Arrays] = [
        {"x": normal(2, channels, s), "p": normal(2, channels, before, seed=2)} for s in TOKENS
    ]
    return model, list(feeds), {"n": (1, 2), "s": (1, 64)}


FORMS = (floats, int4, columns, convolution)
PAIRS = [(form, name) for form in FORMS for name in GEOMETRIES]
SAMPLE = [
    (form, name) for number, form in enumerate(FORMS) for name in list(GEOMETRIES)[number % 2 :: 2]
]


@pytest.mark.parametrize(
    ("form", "name"), PAIRS if os.environ.get("RELAXD_GEOMETRIES") == "all" else SAMPLE
)
def test_outputs_are_onnxruntimes(form: Callable[[], Case], name: str) -> None:
    model, feeds, dims = form()
    assert_like_onnxruntime(model, feeds, dims, geometry(name), tolerance=1e-3)
