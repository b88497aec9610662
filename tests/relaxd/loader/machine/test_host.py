import ctypes
import platform

import pytest

from relaxd.loader.machine.host import cpu_features, listed_features, this_host

X86 = "processor\t: 0\nflags\t\t: fpu sse avx2 fma\n\nprocessor\t: 1\nflags\t\t: fpu sse avx2\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve\n"
RISCV = "processor\t: 0\nisa\t\t: rv64imafdc_zicsr_zba\n"


def test_features_are_those_of_every_core():
    assert cpu_features(X86) == {"fpu", "sse", "avx2"}


def test_other_architectures_spell_them_their_own_way():
    assert cpu_features(ARM) == {"fp", "asimd", "sve"}
    assert cpu_features("features\t: esan3 zarch vx\n") == {"esan3", "zarch", "vx"}
    assert cpu_features(RISCV) == {*"imafdc", "zicsr", "zba"}


def test_other_lines_that_speak_of_flags_are_none():
    assert cpu_features(f"vmx flags\t: vnmi\n{X86}") == {"fpu", "sse", "avx2"}
    assert cpu_features("flags\t\t:\n") == frozenset()


def test_nothing_known():
    assert cpu_features("processor\t: 0\n") == frozenset()


@pytest.mark.parametrize("before", [0, 1000, 1010, 1020, 5000])
def test_the_first_core_is_read_to_the_end_of_its_line(tmp_path, before):
    (tmp_path / "cpuinfo").write_text(f"model name\t: {'x' * before}\n{X86}")
    assert listed_features(str(tmp_path / "cpuinfo")) == {"fpu", "sse", "avx2", "fma"}


def test_every_core_is_read_where_they_differ(tmp_path):
    (tmp_path / "cpuinfo").write_text(RISCV + "x\t: y\n" * 500 + RISCV.replace("_zba", ""))
    assert listed_features(str(tmp_path / "cpuinfo")) == {*"imafdc", "zicsr"}


def test_a_system_without_the_file(tmp_path):
    assert listed_features(str(tmp_path / "cpuinfo")) == frozenset()


def test_this_host():
    host = this_host()
    assert host.os == "linux"
    assert host.arch == platform.machine()
    get_version = ctypes.CDLL(None).gnu_get_libc_version
    get_version.restype = ctypes.c_char_p
    assert host.libc == get_version().decode()
    assert host.isa
