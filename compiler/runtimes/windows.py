"""Libraries that those for Windows are linked against: import libraries of the functions that they
call, and those that no DLL of the system has, in one archive built with zig.
"""

from functools import partial
from pathlib import Path

from compiler.targets import Target
from compiler.toolchain import build, zig

NAME = "windows.lib"
_SOURCE = Path(__file__).with_name("windows.c")
_CONVERSIONS = Path(__file__).with_name("conversions.c")
_FLAGS = ("-std=gnu17", "-O2", "-g0", "-fno-builtin", "-fno-stack-protector", "-Wall", "-Wextra")
_BOTH = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign"),
    *("cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "fdim", "floor", "fma", "fmax"),
    *("fmin", "fmod", "ilogb", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2"),
    *("logb", "lrint", "lround", "modf", "nearbyint", "nextafter", "pow", "remainder", "remquo"),
    *("rint", "round", "scalbn", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc"),
)
"""Functions of doubles, and of floats by the same name with an f."""

IMPORTS = {
    "api-ms-win-crt-math-l1-1-0.dll": (
        *_BOTH,
        *(f"{name}f" for name in _BOTH),
        *("fabs", "frexp", "hypot", "hypotf == _hypotf", "ldexp"),
    ),
    "api-ms-win-crt-heap-l1-1-0.dll": (
        *("calloc", "free", "malloc", "realloc"),
        *("_aligned_free", "_aligned_malloc"),
    ),
    "api-ms-win-crt-private-l1-1-0.dll": ("memchr", "memcmp", "memcpy", "memmove"),
    "api-ms-win-crt-string-l1-1-0.dll": ("memset", "strcmp", "strlen", "strncmp"),
}
"""What the universal C runtime, which is part of Windows, exports and compiled code may call, by
the DLL; `name == exported` where the names differ.
"""


def library(target: Target) -> Path:
    """The archive for the target's platform, built at first into the compiler's cache; raises
    LinkError.
    """
    recipe = build.digest_of((_FLAGS, IMPORTS), _SOURCE, _CONVERSIONS)
    folder = f"{target.platform.linker}-{recipe}"
    return build.build_once(Path("windows", folder, NAME), partial(_build, target))


def _build(target: Target, output: Path) -> None:
    scratch = output.parent
    parts = [scratch / "functions.o"]
    zig.compile_with_zig(
        *(*_FLAGS, "-c", "-o", str(parts[0]), str(_SOURCE)), triple=target.platform.linker
    )
    for dll, names in IMPORTS.items():
        definition, imports = (scratch / f"{dll}{suffix}" for suffix in (".def", ".lib"))
        lines = [f"LIBRARY {dll}", "EXPORTS", *names]
        definition.write_text("\n".join(lines) + "\n")
        zig.import_library(definition, imports)
        parts.append(imports)
    zig.merge_coff(parts, output)
