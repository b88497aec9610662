"""Reading assembly of x86-64 and AArch64: the kernels in it and their innermost loops."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_KERNEL = re.compile(r"^(?:\.L_internal_)?(\w+?)(?:_compute_|\.part\d+):")
_LABEL = re.compile(r"^[A-Za-z_][\w.$]*:")
_BLOCK = re.compile(r"^(\.LBB\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s+(\.LBB\w+)")
_MULTIPLY_ADD = re.compile(r"\s(vfn?madd\w+ps|fmla|fmls)\s")
# Buffers on the stack are read at an index as well, what did not fit in registers is not.
_STACK = re.compile(r"\(%rsp\)|\[sp(, #\d+)?\]")


@dataclass(frozen=True)
class Code:
    """Instructions in order, and the registers that hold whole vectors: `zmm`, or `.4s` and `q`."""

    lines: tuple[str, ...]

    def multiply_adds(self, *registers: str) -> int:
        """Fused multiply-adds of whole vectors."""
        return sum(
            bool(_MULTIPLY_ADD.search(line)) and any(name in line for name in registers)
            for line in self.lines
        )

    def spills(self) -> int:
        """Accesses of vectors on the stack."""
        return sum(
            bool(_STACK.search(line)) and bool(re.search(r"%[xyz]mm|\b[qvd]\d", line))
            for line in self.lines
        )

    def loops(self) -> Iterator["Code"]:
        """The loops of a single block, the jump back included."""
        label, block = "", []
        for line in self.lines:
            if start := _BLOCK.match(line):
                label, block = start[1], []
                continue
            block.append(line)
            if (jump := _JUMP.match(line)) and jump[1] == label:
                yield Code(tuple(block))


def kernels(text: str) -> dict[str, Code]:
    """The code of every kernel by its name, with what of it runs on threads, which comes after it,
    and the bodies that threads and serial loops call.
    """
    lines_of: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        if own := _KERNEL.match(line):
            name = own[1]
        elif _LABEL.match(line):
            name = None
        if name is not None:
            lines_of.setdefault(name, []).append(line)
    return {kernel: Code(tuple(lines)) for kernel, lines in lines_of.items()}


def of_kind(code: dict[str, Code], kind: str) -> Sequence[Code]:
    """The kernels whose names say that they are of a kind."""
    return [kernel for name, kernel in code.items() if kind in name]
