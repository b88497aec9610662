"""AVX-512 code on an emulated processor that has it, against float64."""

import re

import pytest

from compiler import targets
from compiler.verify.emulation.pc import bochs
from tests.avx512.kernels import Kernels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bochs.explain_missing() is not None, reason=str(bochs.explain_missing())),
]

TARGET = targets.resolve("x86-64-v4-vnni")
NAMES = (
    "product", "convolution", "winograd", "attention", "both computed", "depthwise convolution",
    "convolution in groups", "softmax",
    "transpose", "lstm", "quantized matmul", "quantized matmul less a zero point", "quantized "
                                                                                     "convolution",
)  # fmt: skip
TURNS = (1, 4, 7)
SECONDS = 120
INVALID_INSTRUCTION = 128 + 6
VPDPBUSD = "62.{6}50"
EVEX_OR_KMOV = "(62|c5f.9[023])"
"""An instruction with a prefix of AVX-512's own, or one that moves a mask, which has AVX's."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    return Kernels.build(TARGET, NAMES, tmp_path_factory.mktemp("avx512"))


def test_kernels_are_close_to_float64(kernels: Kernels) -> None:
    checked = [case.check(got) for turn in TURNS for case, got in kernels.results(turn, SECONDS)]
    assert len(checked) == len(NAMES) * len(TURNS)


@pytest.mark.parametrize(
    ("processor", "code"),
    [("corei7_haswell_4770", EVEX_OR_KMOV), ("corei7_skylake_x", VPDPBUSD)],
)
def test_the_same_code_ends_where_its_instructions_are_not_there(
    processor: str, code: str, kernels: Kernels
) -> None:
    ended, _ = kernels.call(processor, TURNS[-1], SECONDS)
    assert ended.status == INVALID_INSTRUCTION
    assert re.search(f"code {code}", ended.printed)
