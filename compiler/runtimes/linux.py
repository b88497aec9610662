"""Stand-ins for glibc that libraries for Linux are linked against: they name the functions that
compiled code may call and the versions that it asks for.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compiler.errors import LinkError
from compiler.targets import Target
from compiler.toolchain import build, zig

_BOTH = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign"),
    *("cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "fdim", "floor"),
    *("fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ilogb", "ldexp", "lgamma", "llrint"),
    *("llround", "log", "log10", "log1p", "log2", "logb", "lrint", "lround", "modf"),
    *("nearbyint", "nextafter", "pow", "remainder", "remquo", "rint", "round", "roundeven"),
    *("scalbn", "sin", "sincos", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc"),
)
"""Functions of doubles, and of floats by the same name with an f."""

_MATHEMATICS = (*_BOTH, *(f"{name}f" for name in _BOTH))
_MEMORY = (
    *("aligned_alloc", "calloc", "free", "malloc", "posix_memalign", "realloc"),
    *("bcmp", "memchr", "memcmp", "memcpy", "memmove", "memset"),
    *("strcmp", "strlen", "strncmp", "abort"),
)
_THREADS = (
    *("clock_gettime", "sched_yield", "sigfillset", "syscall"),
    *("pthread_attr_destroy", "pthread_attr_init", "pthread_attr_setdetachstate"),
    *("pthread_cond_init", "pthread_cond_signal", "pthread_cond_wait"),
    *("pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock"),
)

_LOADER = "ld-linux-x86-64.so.2"
LIBRARIES = {
    "libm.so.6": _MATHEMATICS,
    "libc.so.6": (*_MEMORY, *_THREADS),
    _LOADER: ("__tls_get_addr",),
    "libpthread.so.0": ("pthread_create", "pthread_setname_np", "pthread_sigmask"),
}
"""What our code may call, by the library that has it in the oldest glibc that bundles run on, in
the order in which they are searched.
"""

_LATER = {
    **dict.fromkeys(("lgamma", "lgammaf"), "2.23"),
    **dict.fromkeys(("roundeven", "roundevenf"), "2.25"),
    **dict.fromkeys(("exp2f", "expf", "log2f", "logf", "powf"), "2.27"),
}


@dataclass(frozen=True)
class _Abi:
    """A glibc of one architecture: the version of its first functions, the versions of others, and
    the libraries that only other architectures have.
    """

    first: str
    later: dict[str, str]
    lacking: tuple[str, ...] = ()

    def version(self, name: str) -> str:
        return self.later.get(name, self.first)


_ABIS = {
    "x86_64": _Abi(
        "2.2.5",
        {
            **dict.fromkeys(("pthread_cond_init", "pthread_cond_signal"), "2.3.2"),
            "pthread_cond_wait": "2.3.2",
            "pthread_setname_np": "2.12",
            "memcpy": "2.14",
            "aligned_alloc": "2.16",
            "clock_gettime": "2.17",
            "__tls_get_addr": "2.3",
            **_LATER,
        },
    ),
    "aarch64": _Abi("2.17", _LATER, lacking=(_LOADER,)),
}
"""The newest version of a function that a glibc of targets.GLIBC has."""

_FLAGS = (
    *("--shared", "--strip-all", "--build-id=none", "--eh-frame-hdr", "--hash-style=both"),
    *("-O2", "-z", "relro", "-z", "now", "-z", "noexecstack"),
    *("-z", "defs", "--warn-unresolved-symbols", "--no-demangle", "--as-needed"),
)
_CONVERSIONS = Path(__file__).with_name("conversions.c")
_COMPILED = (
    *("-std=gnu17", "-O2", "-g0", "-fPIC", "-fno-builtin", "-fno-stack-protector"),
    # TVM's own modules may bring some of them.
    '-DCONVERSION=__attribute__((weak, visibility("hidden")))',
)
_OF_LOADERS = "TVM"
"""What names of TVM's function interface begin with: whoever loads a library has it."""


def link(objects: Sequence[Path], output: Path, target: Target, flags: Sequence[str] = ()) -> None:
    """Link objects into a shared library; raises LinkError, also where they call what is neither in
    the stand-ins nor of TVM's function interface.
    """
    against = map(str, stand_ins(target))
    with tempfile.TemporaryDirectory() as aside:
        # The linker makes executable files, and a build's sandbox refuses to change their mode.
        linked = Path(aside) / output.name
        undefined = zig.link_elf(
            *(*_FLAGS, *flags, "-o", str(linked), *map(str, objects)),
            *("--start-lib", str(_conversions(target)), "--end-lib", *against),
        )
        if unknown := sorted(name for name in undefined if not name.startswith(_OF_LOADERS)):
            names = ", ".join(unknown)
            message = f"the library calls {names}, which no library for {target.name} is known for"
            raise LinkError(message, reason="failed")
        shutil.copyfile(linked, output)


def warm_up(target: Target) -> None:
    """Build what links take, unless it is there; raises LinkError."""
    stand_ins(target)
    _conversions(target)


def stand_ins(target: Target) -> list[Path]:
    """Shared libraries without code for the target's platform, built at first into the compiler's
    cache; raises LinkError.
    """
    abi = _ABIS[target.arch]
    folder = Path("linux", f"{target.platform.linker}-{recipe(target)}")
    return [
        build.build_once(folder / name, partial(_stand_in, functions, abi, target))
        for name, functions in LIBRARIES.items()
        if name not in abi.lacking
    ]


def recipe(target: Target) -> str:
    """A digest of what decides how objects are linked."""
    return build.digest_of((_FLAGS, _COMPILED, LIBRARIES, _ABIS[target.arch]), _CONVERSIONS)


def _conversions(target: Target) -> Path:
    """The object of conversions that no library has, of which a link takes what it needs."""
    name = Path("linux", f"{target.platform.linker}-{recipe(target)}", "conversions.o")
    return build.build_once(name, partial(_compile_conversions, target))


def _compile_conversions(target: Target, output: Path) -> None:
    zig.compile_with_zig(
        *(*_COMPILED, "-c", "-o", str(output), str(_CONVERSIONS)), triple=target.platform.linker
    )


def _stand_in(functions: Sequence[str], abi: _Abi, target: Target, output: Path) -> None:
    source, compiled, versions = (output.with_name(name) for name in ("a.s", "a.o", "versions"))
    source.write_text("".join(f".globl {n}\n.type {n}, %function\n{n}:\n" for n in functions))
    versions.write_text(_version_script(functions, abi))
    zig.compile_with_zig(*("-c", "-o", str(compiled), str(source)), triple=target.platform.linker)
    named = ("--soname", output.name, "--version-script", str(versions))
    zig.link_elf("--shared", *named, "-o", str(output), str(compiled))


def _version_script(functions: Sequence[str], abi: _Abi) -> str:
    """The versions from the oldest to the newest, each with its functions."""
    tags: dict[tuple[int, ...], list[str]] = {}
    for name in functions:
        tags.setdefault(tuple(map(int, abi.version(name).split("."))), []).append(f"{name};")
    return "".join(
        f"GLIBC_{'.'.join(map(str, tag))} {{ {' '.join(tags[tag])} }};\n" for tag in sorted(tags)
    )
