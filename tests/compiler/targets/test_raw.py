"""Targets that the registry does not have, described in TVM's JSON."""

import json

import pytest

from compiler import targets
from compiler.errors import UnknownTarget


def isa_of(name: str) -> tuple[str, ...]:
    return targets.resolve(name).isa


def raw(**fields: object) -> str:
    return json.dumps({"kind": "llvm", **fields})


def test_a_described_target_is_as_described() -> None:
    described = targets.resolve(
        raw(mtriple="x86_64-linux-gnu", mcpu="x86-64-v3", mattr=["+avx512f"])
    )
    assert (described.vector_bits, described.vector_registers, described.capability) == (
        512,
        32,
        "raw-llvm",
    )
    assert set(described.load.isa) == {*isa_of("x86-64-v3"), "avx512f"}
    assert described.to_tvm()["mattr"] == ["+avx512f"]
    assert described == targets.resolve(described.name)


def test_a_described_gpu_keeps_its_options_and_gets_a_host() -> None:
    described = targets.resolve(
        json.dumps({"kind": "cuda", "arch": "sm_75", "max_num_threads": 512})
    )
    assert (described.load.device, described.load.sm, described.capability) == (
        "cuda",
        "sm_75",
        "raw-cuda",
    )
    assert described.to_tvm()["max_num_threads"] == 512
    assert described.to_tvm()["host"]["mtriple"].startswith("x86_64")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "JSONDecodeError"),
        (raw(kind="hexagon"), "kind 'hexagon'"),
        (raw(mtriple="mips-linux-gnu"), "of no platform.*big-endian"),
        (raw(mtriple="i686-pc-windows-msvc"), "of no platform.*32-bit x86"),
        (raw(mtriple="loongarch64-linux-gnu"), "of no platform"),
        (raw(mcpu="znver4"), "does not tell which features a loader must check for"),
        (raw(mcpu="x86-64-v3", mattr=["+amx-tile"]), "cannot be checked"),
        (
            raw(mtriple="aarch64-linux-gnu", mcpu="neoverse-n1"),
            "does not tell which features a loader must check for",
        ),
        (raw(keys=["cpu"]), "keys must be"),
    ],
)
def test_a_described_target_that_cannot_be_kept_to_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnknownTarget, match=why) as caught:
        targets.resolve(text)
    assert (caught.value.code, caught.value.failure.field) == ("target.unusable", "targets")
