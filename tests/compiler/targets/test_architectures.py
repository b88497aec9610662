"""Each architecture's value agrees with itself: what is looked up by name is found, and what raw
targets may name is what entries are made of.
"""

import json

import pytest

from compiler import targets
from compiler.errors import UnknownTarget
from compiler.targets import Runtime, TargetStatus
from compiler.targets.architecture import Architecture
from compiler.targets.architectures import ARCHITECTURES, architecture_of, find_architecture
from compiler.targets.caches import Caches
from compiler.targets.vector_unit import VectorUnit
from tests.support.binaries import ELF

EACH = pytest.mark.parametrize("known", ARCHITECTURES, ids=lambda known: known.name)


@EACH
def test_targets_and_platforms_are_of_the_architecture(known: Architecture) -> None:
    assert known.entries
    assert {target.arch for target in known.entries} == {known.name}
    if known.platforms:
        assert {platform.arch for platform in known.platforms} == {known.name}
        assert {target.platform for target in known.entries} <= set(known.platforms)
    else:
        with pytest.raises(UnknownTarget, match="rv32imc and rv32imafc"):
            targets.resolve(json.dumps({"kind": "llvm", "mtriple": f"{known.name}-none-elf"}))
    assert all(targets.resolve(target.name) == target for target in known.entries)
    assert known.name in ELF or known.name == "wasm32"


@EACH
def test_an_emulated_target_has_an_emulator_to_run_on(known: Architecture) -> None:
    emulated = [target for target in known.entries if target.status is TargetStatus.EMULATED]
    for target in emulated:
        assert target.emulator is not None
        assert known.emulation
        dynamic = target.platform.runtime is Runtime.BUNDLED or bool(target.platform.unseen)
        assert dynamic == (known.emulation.sysroot is not None)
        assert dynamic == (known.emulation.linker is not None)


@EACH
def test_registers_are_never_wider_than_an_entry_says(known: Architecture) -> None:
    """A raw target in an entry's own words has that entry's registers."""
    for target in known.entries:
        registers = known.registers(target.cpu, target.features)
        assert (registers.bits, registers.count, registers.fma) == (
            target.vector_bits,
            target.vector_registers,
            target.fma,
        )


@EACH
def test_a_raw_target_in_the_words_of_an_entry_checks_no_less(known: Architecture) -> None:
    for target in known.entries:
        if target.cpu not in known.cpus or target.platform.archived:
            continue
        spelled = [feature for feature in target.features if feature in known.features]
        text = {"kind": "llvm", "mtriple": target.triple, "mcpu": target.cpu, "mattr": spelled}
        raw = targets.resolve(json.dumps(text))
        assert set(raw.isa) >= {known.features[feature] for feature in spelled}
        assert set(raw.isa) <= set(target.isa)


@pytest.mark.parametrize(
    "known", [known for known in ARCHITECTURES if known.native], ids=lambda known: known.name
)
def test_native_needs_no_more_than_the_machine_has(known: Architecture) -> None:
    assert known.native
    caches = Caches(l1=1 << 15, l2=1 << 20, l3=0)
    plain = known.native(frozenset(), caches)
    for target in known.entries:
        isa = frozenset(target.isa)
        native = known.native(isa, caches)
        assert native.name == "native"
        assert native.caches == caches
        assert set(native.isa) <= isa | set(plain.isa)
        assert native.vector_bits <= max(target.vector_bits, plain.vector_bits)


@EACH
def test_integer_dot_instructions_take_a_feature_of_the_target(known: Architecture) -> None:
    for target in known.entries:
        offered = [
            unit
            for unit in known.integer_dots
            if unit.dot in of(target.name) and unit.bits == target.vector_bits
        ]
        assert all(unit.feature in target.isa for unit in offered)
        assert len(offered) == len(of(target.name))


def of(name: str) -> tuple[object, ...]:
    return VectorUnit.of(targets.resolve(name)).integer_dots


def test_names_are_found_or_not() -> None:
    assert [architecture_of(known.name) for known in ARCHITECTURES] == list(ARCHITECTURES)
    assert find_architecture("vax") is None
    with pytest.raises(KeyError):
        architecture_of("vax")
