import dataclasses
import json
import subprocess
import sys

import pytest

from compiler import targets
from compiler.errors import UnknownTarget
from compiler.targets import Runtime, TargetStatus
from compiler.targets.caches import Caches
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.options import Flavour
from relaxd.loader.machine.host import Host, this_host
from tests.vector_unit.hook import is_installed

detects = pytest.mark.skipif(is_installed(), reason="`native` has another vector unit in this run")


def machine(*isa: str, arch: str = "x86_64") -> Host:
    return Host(arch, "linux", frozenset(isa), "2.36")


def with_host(monkeypatch: pytest.MonkeyPatch, value: Host) -> None:
    monkeypatch.setattr(targets, "this_host", lambda: value)
    monkeypatch.setattr(targets, "host_caches", lambda: Caches(48 << 10, 1 << 20, 4 << 20))


def isa_of(name: str) -> tuple[str, ...]:
    return targets.resolve(name).isa


def test_each_level_holds_the_one_below() -> None:
    v2, v3, v4 = (set(isa_of(f"x86-64-v{level}")) for level in (2, 3, 4))
    assert v2 < v3 < v4


def test_native_is_what_this_machine_has() -> None:
    native = targets.resolve("native")
    assert set(native.isa) <= this_host().isa
    assert native.load.isa == native.isa


@detects
@pytest.mark.parametrize(("level", "bits", "registers"), [(2, 128, 16), (3, 256, 16), (4, 512, 32)])
def test_native_takes_the_highest_level(
    monkeypatch: pytest.MonkeyPatch, level: int, bits: int, registers: int
) -> None:
    with_host(monkeypatch, machine(*isa_of(f"x86-64-v{level}")))
    native = targets.resolve("native")
    assert (native.cpu, native.vector_bits, native.vector_registers) == (
        f"x86-64-v{level}",
        bits,
        registers,
    )
    assert native.caches.l1 == 48 << 10


@detects
def test_native_adds_what_lies_beyond_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, machine(*isa_of("x86-64-v4"), "avx512_vnni", "hypervisor"))
    native = targets.resolve("native")
    assert "+avx512vnni" in native.features
    assert "avx512_vnni" in native.isa
    assert "hypervisor" not in native.isa


def test_a_masked_avx512_leaves_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, machine(*isa_of("x86-64-v3"), "avx512_vnni"))
    assert "avx512_vnni" not in targets.resolve("native").isa


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(UnknownTarget) as caught:
        targets.resolve("x86-64-v9")
    assert caught.value.message == "unknown target 'x86-64-v9'"
    assert caught.value.code == "target.unknown"
    assert caught.value.failure.field == "targets"
    assert caught.value.failure.details["known"] == list(targets.names())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("i686", "32-bit x86 is not supported"),
        ("s390x", "big-endian"),
        ("aarch64_be-linux", "big-endian"),
        ("xtensa-esp32", "Xtensa"),
        ("riscv32", "rv32imc and rv32imafc"),
    ],
)
def test_a_processor_without_a_target_is_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(UnknownTarget, match=why) as caught:
        targets.resolve(name)
    assert caught.value.code == "target.unknown"


def test_another_architecture_has_no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, machine("fp", arch="sparc64"))
    with pytest.raises(UnknownTarget, match="sparc64"):
        targets.resolve("native")
    assert "native" not in [target.name for target in targets.registry()]


@detects
def test_native_says_what_it_resolved_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, machine(*isa_of("x86-64-v3"), "aes"))
    assert targets.resolve("native").to_json()["resolved"] == "x86-64-v3+aes"
    with_host(monkeypatch, machine(*isa_of("aarch64-v8.2"), arch="aarch64"))
    native = targets.resolve("native")
    assert (native.resolved, native.isa) == ("aarch64-v8.2", isa_of("aarch64-v8.2"))
    with_host(monkeypatch, machine(*isa_of("aarch64-v8.2"), "bf16", arch="aarch64"))
    native = targets.resolve("native")
    assert native.resolved == "aarch64-v8.2+bf16"
    assert "bf16" in native.isa
    assert VectorUnit.of(native).bfloat16_dot is not None


def test_every_name_that_was_promised_is_there() -> None:
    cpus = (
        "x86-64-v2 x86-64-v3 x86-64-v4 x86-64-v4-vnni aarch64 aarch64-v8.2 armv7 riscv64 riscv64-v"
    )
    systems = (
        "wasm32 wasm32-simd wasm32-relaxed-simd wasm32-threads android-arm64 ios-arm64 "
        "macos-arm64 windows-x86-64"
    )
    boards = "cortex-m4 cortex-m7 cortex-m55 rv32imc rv32imafc"
    gpus = "cuda-sm80 cuda-sm89 cuda-sm90 opencl opencl-mali opencl-adreno metal webgpu rocm"
    assert set(targets.names()) >= {
        "native",
        *cpus.split(),
        *systems.split(),
        *boards.split(),
        *gpus.split(),
    }


@pytest.mark.parametrize("name", targets.names())
def test_an_entry_is_whole(name: str) -> None:
    target = targets.resolve(name)
    assert target.load.arch == target.arch
    assert target.platform.library.endswith(".a") == target.platform.archived
    assert target.platform.archived >= (target.platform.runtime is Runtime.LINKED)
    assert json.loads(json.dumps(target.to_json())) == target.to_json()
    if target.status is TargetStatus.EMULATED:
        assert target.emulator is not None or target.device


@pytest.mark.parametrize(
    ("names", "flavours"),
    [
        ("native x86-64-v3 aarch64 macos-arm64 windows-x86-64", "standalone vm"),
        ("cuda-sm80 opencl opencl-adreno metal rocm", "vm"),
        ("armv7 riscv64 riscv64-v android-arm64 ios-arm64", "standalone vm"),
        ("wasm32 wasm32-simd wasm32-relaxed-simd wasm32-threads webgpu", "standalone"),
        ("cortex-m4 cortex-m7 cortex-m55 rv32imc rv32imafc", "standalone"),
        ("cuda-sm80 opencl opencl-adreno metal", "vm"),
    ],
)
def test_what_runs_a_graph(names: str, flavours: str) -> None:
    for target in map(targets.resolve, names.split()):
        assert target.flavours == tuple(map(Flavour, flavours.split()))
        assert target.flavour(None) is target.flavours[0]
        for flavour in Flavour:
            if flavour in target.flavours:
                assert target.flavour(flavour) is flavour
                continue
            with pytest.raises(UnknownTarget, match=f"no backend '{flavour.value}'") as caught:
                target.flavour(flavour)
            assert caught.value.failure.field == "options.flavour"


@pytest.mark.parametrize("name", ["native", "armv7", "wasm32-simd", "cortex-m7"])
def test_whose_libraries_hold_their_weights(name: str) -> None:
    target, alone = targets.resolve(name), Flavour.STANDALONE
    assert target.embeds(None, alone) == (name == "cortex-m7")
    assert target.embeds(True, alone)
    assert not target.embeds(False, alone)
    with pytest.raises(UnknownTarget, match="cannot hold its weights") as caught:
        target.embeds(True, Flavour.VM)
    assert caught.value.failure.field == "options.embed_weights"


def test_entries_are_frozen_and_labelled() -> None:
    for target in targets.registry():
        assert dataclasses.is_dataclass(target)
        assert target.status in TargetStatus
        assert target.to_json()["isa"] == list(target.isa)


def test_resolving_takes_neither_tvm_nor_onnx() -> None:
    script = (
        "import sys; from compiler import targets; from compiler.isolation import child; "
        "from compiler.toolchain import versions; targets.registry(); versions.versions();"
        "print(sorted({'tvm', 'onnx', 'torch'} & sys.modules.keys()))"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
