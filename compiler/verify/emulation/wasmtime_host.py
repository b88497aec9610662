"""Runs a model in WebAssembly once, in wasmtime: takes the arguments of `engine.mjs` and does what
that does.
"""

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wasmtime

from compiler.verify.emulation import tensors
from compiler.verify.emulation.tensors import Array

_HEADER, _ROW, _DIM = 24, 20, 32
"""Bytes of the interface's head, of an entry for an output, and of one for a dim."""


class Failed(RuntimeError):
    """The model reported an error, which is the text."""


@dataclass(frozen=True)
class _Instance:
    """A module of `prefix` in a store, its functions and its memory, which may grow."""

    store: wasmtime.Store
    exports: Any
    prefix: str
    memory: Any

    def call(self, name: str, *arguments: int) -> int:
        """The result of a function of the library, 0 where it has none."""
        return int(self.exports[f"{self.prefix}_{name}"](self.store, *arguments) or 0)

    def locate(self, name: str, *arguments: int) -> int:
        """The address that a function returns."""
        return self.call(name, *arguments) & 0xFFFFFFFF

    def read(self, address: int, length: int) -> bytes:
        """A copy of a part of the memory; raises Failed for one outside of it."""
        self._check(address, length)
        return bytes(self.memory.read(self.store, address, address + length))

    def read_text(self, address: int) -> str:
        """The text at the address, which ends with a zero."""
        end, part = address, b""
        while not part.endswith(b"\0"):
            part, end = self.read(end, 1), end + 1
        return self.read(address, end - 1 - address).decode()

    def read_words(self, address: int, count: int = 1) -> tuple[int, ...]:
        """Numbers of 32 bits."""
        return struct.unpack(f"<{count}I", self.read(address, 4 * count))

    def hold(self, content: bytes) -> int:
        """The address of a copy of the content, which stays."""
        address = self.take(len(content))
        self._check(address, len(content))
        self.memory.write(self.store, content, address)
        return address

    def take(self, length: int) -> int:
        """The address of so much new memory; raises Failed."""
        address = self.locate("allocate", max(length, 1))
        if not address:
            raise Failed(f"out of memory: nothing is left for {length} bytes")
        return address

    def _check(self, address: int, length: int) -> None:
        if address + length > self.memory.data_len(self.store):
            raise Failed(f"the library has {length} bytes at {address}, outside of its memory")


def _start(library: Path, prefix: str) -> _Instance:
    """An instance of the library, which imports nothing."""
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    engine = wasmtime.Engine(config)
    store = wasmtime.Store(engine)
    module = wasmtime.Module.from_file(engine, str(library))
    exports = wasmtime.Instance(store, module, []).exports(store)
    return _Instance(store, exports, prefix, exports["memory"])


def run(
    library: Path, prefix: str, weights: bytes, inputs: Sequence[Array], dims: dict[str, int]
) -> tuple[list[Array], list[Array]]:
    """The outputs of one run, and what it left in the inputs; raises Failed, and what wasmtime
    raises.
    """
    model = _start(library, prefix)
    table, context = _open(model, weights, dims)
    addresses = [model.hold(array.tobytes()) for array in inputs]
    pointers = model.hold(struct.pack(f"<{len(addresses)}I", *addresses))
    _check(model, context, model.call("run", context, pointers, 0))
    (count,) = model.read_words(table + 8)
    outputs = [_read_output(model, table, context, index) for index in range(count)]
    left = [
        tensors.from_bytes(model.read(address, array.nbytes), array.dtype.name, array.shape, 0)
        for address, array in zip(addresses, inputs, strict=True)
    ]
    return outputs, left


def _open(model: _Instance, weights: bytes, dims: dict[str, int]) -> tuple[int, int]:
    """The library's interface and a context that is bound to the dims; raises Failed."""
    table = model.locate("interface")
    stored = model.hold(weights) if weights else 0
    context = model.take(model.call("size"))
    _check(model, context, model.call("open", context, stored, 0))
    bound = model.call("bind", context, model.hold(_pack(_list_dims(model, table, dims))))
    _check(model, context, min(bound, 0))
    _check(model, context, model.call("arena", context, model.take(bound)))
    return table, context


def _check(model: _Instance, context: int, status: int) -> None:
    if status:
        why = model.read_text(model.locate("failure", context))
        raise Failed(why or f"status {status}")


def _pack(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _list_dims(model: _Instance, table: int, dims: dict[str, int]) -> list[int]:
    """The values in the library's order."""
    (count,), (entries,) = model.read_words(table + 12), model.read_words(table + 28)
    names = (model.read_text(*model.read_words(entries + _DIM * index)) for index in range(count))
    return [dims[name] for name in names]


def _read_output(model: _Instance, table: int, context: int, index: int) -> Array:
    (rows,) = model.read_words(table + _HEADER)
    _, name, item, rank = model.read_words(rows + _ROW * index, 4)
    extents = model.read(model.locate("shape", context, index), 8 * rank)
    shape = struct.unpack(f"<{rank}q", extents)
    size = item
    for extent in shape:
        size *= extent
    content = model.read(model.locate("output", context, index), size)
    return tensors.from_bytes(content, model.read_text(name), shape, 0)


def main() -> None:
    """Read the command line and do it; what fails is the last line."""
    library, prefix, weights, inputs, outputs, written, *pairs = sys.argv[1:]
    dims = {name: int(value) for name, _, value in (pair.rpartition("=") for pair in pairs)}
    content = Path(weights).read_bytes() if weights else b""
    try:
        results, left = run(Path(library), prefix, content, tensors.read(Path(inputs)), dims)
    except (Failed, wasmtime.WasmtimeError, wasmtime.Trap) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    positions = [int(word) for word in written.split(",") if word]
    tensors.write(Path(outputs), [*results, *(left[position] for position in positions)])


if __name__ == "__main__":
    main()
