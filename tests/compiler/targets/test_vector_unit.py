"""The vector unit of a target: never less than kernels count on."""

import dataclasses

import pytest

from compiler import targets
from compiler.targets.caches import Caches
from compiler.targets.vector_unit import VectorUnit


@pytest.mark.parametrize("target", targets.registry(), ids=lambda target: target.name)
def test_every_target_has_one(target: targets.Target) -> None:
    unit = VectorUnit.of(target)
    assert unit.vector_bits >= max(target.vector_bits, 64)
    assert unit.registers >= 8
    assert min(unit.l1, unit.l2, unit.l3) > 0
    assert unit.unroll >= 1
    assert unit.fma or unit.unroll == 1


def test_caches_that_a_target_does_not_state_are_small() -> None:
    target = dataclasses.replace(targets.resolve("aarch64"), caches=Caches(l1=0, l2=1 << 20, l3=0))
    unit = VectorUnit.of(target)
    assert (unit.l1, unit.l2, unit.l3) == (VectorUnit.l1, 1 << 20, VectorUnit.l3)


@pytest.mark.parametrize(
    ("name", "intrinsics"),
    [
        ("x86-64-v2", ["llvm.x86.sse2.pmadd.wd"]),
        ("x86-64-v3", ["llvm.x86.avx2.pmadd.wd"]),
        ("x86-64-v4-vnni", ["llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.pmaddw.d.512"]),
        ("aarch64", []),
        ("aarch64-v8.2", ["llvm.aarch64.neon.sdot.v4i32.v16i8"]),
        ("riscv64-v", []),
    ],
)
def test_integer_dot_instructions_are_of_the_width_the_fastest_first(
    name: str, intrinsics: list[str]
) -> None:
    unit = VectorUnit.of(targets.resolve(name))
    assert [dot.intrinsic for dot in unit.integer_dots] == intrinsics


@pytest.mark.parametrize(
    ("bits", "lanes"), [(1, 64), (8, 64), (16, 32), (32, 16), (64, 8), (1024, 1)]
)
def test_lanes(bits: int, lanes: int) -> None:
    assert VectorUnit(vector_bits=512).lanes(bits) == lanes


@pytest.mark.parametrize(
    ("name", "looks_up"), [("x86-64-v4", True), ("x86-64-v3", False), ("aarch64", False)]
)
def test_which_looks_numbers_up(name: str, looks_up: bool) -> None:
    assert VectorUnit.of(targets.resolve(name)).looks_up == looks_up
