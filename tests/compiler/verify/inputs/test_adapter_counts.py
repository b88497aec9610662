"""Libraries with adapters are tried with one or two."""

from typing import Any

import pytest

from compiler.verify.inputs.adapter_counts import with_few_adapters
from compiler.verify.inputs.inputs import Signature, prepare
from relaxd.contract.bundle.adapters import Adapters, Module
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec

ADAPTERS = Adapters("i", "r", 8, (Module(0, "q_proj", "down", "up", 0.5),), 1, 1, neighbours=False)


def signature(count: Dim) -> Signature:
    inputs = [
        TensorSpec.of("i", "int32[b]"),
        TensorSpec.of("r", "int32[count,1]"),
        TensorSpec.of("down", "float32[count,8,4]"),
    ]
    return Signature(tuple(inputs), (), (Dim("b", 1, 9), count), {})


@pytest.mark.parametrize(
    ("dim", "counts"),
    [
        (Dim("count"), {1, 2}),
        (Dim("count", 1, 16), {1, 2}),
        (Dim("count", 4, 4), {4}),
        (Dim("count", 1, 1), {1}),
    ],
)
def test_points_have_few_adapters(dim: Dim, counts: set[int], tmp_path: Any) -> None:
    trials = prepare(with_few_adapters(signature(dim), ADAPTERS), None, 0, tmp_path, 1 << 20)
    assert {trial.point.dims["count"] for trial in trials.chosen} == counts
    assert {trial.point.dims["b"] for trial in trials.chosen} >= {1, 9}


def test_other_signatures_stay() -> None:
    plain = signature(Dim("count"))
    assert with_few_adapters(plain, None) is plain
