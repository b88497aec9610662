"""Compiles the C code of custom operators into objects that are linked with the kernels."""

from collections.abc import Sequence
from pathlib import Path

from compiler.errors import LinkError
from compiler.targets import ObjectFormat, Target
from compiler.targets.architectures import board_of
from compiler.toolchain import zig
from relaxd.contract.operators import CustomOperator

_FLAGS = (
    *("-std=gnu17", "-O3", "-g0", "-fPIC", "-fvisibility=hidden"),
    *("-ffunction-sections", "-fdata-sections", "-fno-stack-protector"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
)

_DARWIN = "any-darwin-any"
_WITHOUT_HEADERS = {"android": "aarch64-linux-musl", "ios": _DARWIN}
"""By operating system, the folder of zig's headers that stand for its own."""


def compile_operators(
    operators: Sequence[CustomOperator], folder: Path, target: Target
) -> list[Path]:
    """An object of each source in the folder; raises LinkError with what the C compiler says.

    Functions are renamed to their symbols, so that libraries of several models may have operators
    of one name.
    """
    sources = dict.fromkeys(operator.source for operator in operators)
    return [
        _compile([o for o in operators if o.source == source], folder / f"operators{i}.c", target)
        for i, source in enumerate(sources)
    ]


def _compile(operators: Sequence[CustomOperator], path: Path, target: Target) -> Path:
    path.write_text(_text(operators), encoding="utf-8")
    output = path.with_suffix(".o")
    try:
        zig.compile_with_zig(
            *(*_FLAGS, *_processor(target), "-c", "-o", str(output), str(path)),
            triple=target.platform.linker,
        )
    except LinkError as error:
        raise _refused(operators, str(error.failure.details.get("output", ""))) from error
    return output


def _refused(operators: Sequence[CustomOperator], output: str) -> LinkError:
    """The compiler's output, in which functions have their own names."""
    for operator in operators:
        output = output.replace(operator.symbol, operator.function)
    errors = [line for line in output.splitlines() if "error:" in line]
    names = ", ".join(operator.name for operator in operators)
    return LinkError(
        f"the C code of {names} cannot be compiled: {errors[0] if errors else 'see the output'}",
        reason="custom_operator",
        hint="the function must be declared as " + operators[0].prototype,
        output=output,
    )


def _text(operators: Sequence[CustomOperator]) -> str:
    """The source behind declarations, which its functions have to agree with."""
    renamed = [f"#define {o.function} {o.symbol}" for o in operators]
    # Equal code in two archives of one program is one function.
    shared = [f"#pragma weak {o.symbol}" for o in operators]
    declared = [o.prototype for o in operators]
    return "\n".join(
        (
            "#include <stdint.h>",
            *renamed,
            "#ifndef _WIN32",
            *shared,
            "#endif",
            *declared,
            '#line 1 "source"',
            operators[0].source,
            "",
        )
    )


def _processor(target: Target) -> tuple[str, ...]:
    if target.platform.bare:
        board = board_of(target)
        return (board.processor(target), "-fno-pic", *_headers(f"{board.headers}-linux-musl"))
    if target.platform.object_format is ObjectFormat.WASM:
        features = (feature.replace("-", "_") for feature in target.features)
        return (f"-mcpu={''.join(('generic', *features))}",)
    if target.platform.os in _WITHOUT_HEADERS:
        return _headers(_WITHOUT_HEADERS[target.platform.os])
    is_named = not target.cpu.startswith("generic")
    return (f"-mcpu={target.cpu.replace('-', '_')}",) if is_named else ()


def _headers(folder: str) -> tuple[str, ...]:
    """Where the C library's are, of targets for which zig has no C library."""
    own = zig.sources() / "libc/include"
    general = () if folder == _DARWIN else ("-isystem", str(own / "generic-musl"))
    return ("-isystem", str(own / folder), *general)
