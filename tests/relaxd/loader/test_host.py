import ctypes
import platform

from relaxd.loader.host import cpu_features, this_host

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


def test_this_host():
    host = this_host()
    assert host.os == "linux"
    assert host.arch == platform.machine()
    get_version = ctypes.CDLL(None).gnu_get_libc_version
    get_version.restype = ctypes.c_char_p
    assert host.libc == get_version().decode()
    assert host.isa
