"""The virtual machine's bytecode of an executable: read from TVM's serialised form and written back
to it.
"""

import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate
from pathlib import Path

import tvm
from tvm import relax

from compiler.errors import CodegenError

_KIND = "relax.VMExecutable"
_MAGIC = 0xD225DE2F4214151E
_REGISTER_BITS = 56
"""An argument is a word: its kind in the upper eight bits, a number in the lower 56."""


class Operation(IntEnum):
    """The first word of an instruction."""

    CALL = 1
    RET = 2
    GOTO = 3
    IF = 4


class ArgumentKind(IntEnum):
    """The kinds of arguments, by their number."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


Instruction = tuple[int, ...]
"""The words of an instruction: CALL result function count argument...; RET register; GOTO offset;
IF condition offset. Offsets count instructions from this one."""


def register(argument: int) -> int | None:
    """The number of the register that an argument names; None for an argument of another kind."""
    kind, number = argument >> _REGISTER_BITS, argument & ((1 << _REGISTER_BITS) - 1)
    return number if kind == ArgumentKind.REGISTER else None


@dataclass(frozen=True)
class Function:
    """An entry of the function table; one of the host or of the runtime has no instructions.

    Its arguments are in the first registers. `first` is the place of its first instruction in the
    code, whose order is not that of the table.
    """

    kind: int
    name: str
    first: int
    arguments: int
    registers: int
    parameters: tuple[str, ...]
    instructions: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class Bytecode:
    """Functions in the order of their indices; the sections between them and the code, which hold
    constants, stay as they are.
    """

    header: bytes
    functions: tuple[Function, ...]
    sections: bytes

    def index(self, name: str) -> int:
        """The index of the function of that name; raises CodegenError where there is none."""
        for index, function in enumerate(self.functions):
            if function.name == name:
                return index
        raise CodegenError(f"the bytecode has no function {name}", reason="bytecode")


def read(executable: relax.VMExecutable) -> Bytecode:
    """The bytecode of an executable; raises CodegenError where TVM writes it in another form than
    0.27 does.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "executable")
        executable.mod.write_to_file(str(file), _KIND)
        return decode(file.read_bytes())


def with_bytecode(executable: relax.VMExecutable, bytecode: Bytecode) -> relax.VMExecutable:
    """The executable with other bytecode and the same machine code."""
    load = tvm.get_global_func(f"ffi.Module.load_from_bytes.{_KIND}")
    module = load(encode(bytecode))
    for imported in executable.mod.imports:
        module.import_module(imported)
    return relax.VMExecutable(module)


class _Reader:
    """Numbers and texts of a serialised executable, in order."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position = content, 0

    def number(self, form: str = "<q") -> int:
        (value,) = struct.unpack_from(form, self.content, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        size = self.number()
        start, self.position = self.position, self.position + size
        return self.content[start : self.position].decode()


def decode(content: bytes) -> Bytecode:
    """Bytecode of its serialised form: magic number, version, function table, sections, code."""
    try:
        return _decode(content)
    except (struct.error, UnicodeDecodeError) as error:
        raise _unreadable() from error


def _decode(content: bytes) -> Bytecode:
    reader = _Reader(content)
    if reader.number("<Q") != _MAGIC:
        raise _unreadable()
    reader.text()
    header = content[: reader.position]
    entries = [_entry(reader) for _ in range(reader.number())]
    count = max((end for _, end in entries), default=0)
    start = _code(content, reader.position, count)
    instructions = _instructions(content, start, count)
    functions = tuple(
        replace(function, instructions=tuple(instructions[function.first : end]))
        for function, end in entries
    )
    bytecode = Bytecode(header, functions, content[reader.position : start])
    if encode(bytecode) != content:
        raise _unreadable()
    return bytecode


def _unreadable() -> CodegenError:
    return CodegenError("TVM writes bytecode in another form than it did", reason="bytecode")


def _entry(reader: _Reader) -> tuple[Function, int]:
    """An entry of the function table, and where its instructions end."""
    kind, name = reader.number("<i"), reader.text()
    first, end, arguments, registers = (reader.number() for _ in range(4))
    parameters = tuple(reader.text() for _ in range(reader.number()))
    return Function(kind, name, first, arguments, registers, parameters), end


def _code(content: bytes, after: int, count: int) -> int:
    """Where the code section starts, which is the last: a list of `count` offsets, and the list of
    words that they point into. Each list has its length before it. An instruction has at least two
    words.
    """
    smallest = len(content) - 16 - 8 * count
    for words in range(2 * count, (smallest - after) // 8 + 1):
        start = smallest - 8 * words
        offsets, size = struct.unpack_from("<q", content, start), start + 8 + 8 * count
        if offsets == (count,) and struct.unpack_from("<q", content, size) == (words,):
            return start
    raise _unreadable()


def _instructions(content: bytes, start: int, count: int) -> list[Instruction]:
    offsets = struct.unpack_from(f"<{count}q", content, start + 8)
    (size,) = struct.unpack_from("<q", content, start + 8 + 8 * count)
    words = struct.unpack_from(f"<{size}q", content, start + 16 + 8 * count)
    ends = (*offsets[1:], size)
    return [tuple(words[first:end]) for first, end in zip(offsets, ends, strict=True)]


def encode(bytecode: Bytecode) -> bytes:
    """The serialised form, as `decode` reads it."""
    order = sorted((f for f in bytecode.functions if f.instructions), key=lambda f: f.first)
    ends = list(accumulate(len(function.instructions) for function in order))
    spans = {
        function.name: (end - len(function.instructions), end)
        for function, end in zip(order, ends, strict=True)
    }
    table = [_row(function, spans.get(function.name, (0, 0))) for function in bytecode.functions]
    instructions = [words for function in order for words in function.instructions]
    offsets = list(accumulate((len(words) for words in instructions), initial=0))[:-1]
    words = [word for instruction in instructions for word in instruction]
    head = [bytecode.header, _numbers(len(table)), *table, bytecode.sections]
    return b"".join([*head, _list(offsets), _list(words)])


def _row(function: Function, span: tuple[int, int]) -> bytes:
    sizes = _numbers(*span, function.arguments, function.registers, len(function.parameters))
    names = map(_text, function.parameters)
    return b"".join([struct.pack("<i", function.kind), _text(function.name), sizes, *names])


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _list(values: Sequence[int]) -> bytes:
    return _numbers(len(values), *values)


def _text(value: str) -> bytes:
    content = value.encode()
    return _numbers(len(content)) + content
