"""The host's part of tensor programs as C functions: conditions on extents, and launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.codegen.standalone.memory import size_of
from compiler.errors import CodegenError
from compiler.passes.lower.functions.c_interface import Kernel, extents_of, placeholders_of
from compiler.tir.c_text import expression
from compiler.tir.exprs import dtype_of, op_name
from relaxd.contract.dims.axis_forms import identifier

_LAUNCH = "tirx.call_ffi_kernel"
_DATA = "tirx.buffer_data"
_AXES = ("blockIdx.x", "blockIdx.y")
_NUMBERS = ("int32", "int64", "uint32")


@dataclass(frozen=True)
class Launcher(Kernel):
    """A tensor program whose shaders a C function launches; `text` is that function.

    workspaces: bytes of each buffer that its shaders keep between them, as `scratch` is written:
    further parameters, behind the extents.
    """

    text: str
    workspaces: tuple[str, ...]


def launcher(symbol: str, func: tirx.PrimFunc, numbers: Mapping[str, int]) -> Launcher:
    """The function for a program's host part; raises CodegenError.

    numbers: of the shaders, by name.
    """
    return _Writer(symbol, func, numbers).write()


@dataclass
class _Writer:
    symbol: str
    func: tirx.PrimFunc
    numbers: Mapping[str, int]
    names: dict[Any, str] = field(default_factory=dict)
    buffers: dict[Any, str] = field(default_factory=dict)
    workspaces: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def write(self) -> Launcher:
        parameters: list[str] = []
        kinds: list[str | None] = []
        scalars: dict[Any, int] = {}
        for i, param in enumerate(self.func.params):
            if hasattr(param.ty, "shape"):
                self.buffers[param] = f"b{i}"
                # Tensors begin where their buffers do.
                self.names[param.ty.elem_offset] = "0"
                parameters.append(f"void *b{i}")
                kinds.append(None)
                continue
            self.names[param] = f"v{i}"
            scalars[param] = i
            parameters.append(f"int64_t v{i}")
            kinds.append(self._number(param))
        origins = extents_of(self.func.params)
        free = tirx.analysis.undefined_vars(self.func.body, list(self.func.params))
        extents = [var for var in free if var in origins]
        for i, var in enumerate(extents):
            self.names[var] = f"n{i}"
            parameters.append(f"int64_t n{i}")
        self._statement(self.func.body)
        parameters += [f"void *w{i}" for i in range(len(self.workspaces))]
        head = f"static int {self.symbol}({', '.join(parameters) or 'void'})"
        return Launcher(
            self.symbol,
            tuple(kinds),
            tuple(origins[var] for var in extents),
            tuple(dtype_of(var) for var in extents),
            "0",
            (),
            "\n".join([f"{head} {{", *self.lines, "  return 0;", "}"]),
            tuple(
                expression(size, placeholders_of(extents, scalars), {}) for size in self.workspaces
            ),
        )

    def _statement(self, stmt: Any) -> None:
        match stmt:
            case tirx.SeqStmt():
                for part in stmt.seq:
                    self._statement(part)
            case tirx.AttrStmt():
                self._statement(stmt.body)
            case tirx.DeclBuffer():
                self.buffers[stmt.buffer] = self._buffer_of(stmt.data)
            case tirx.AllocBuffer():
                self.buffers[stmt.buffer] = f"w{len(self.workspaces)}"
                shape = [extent.astype("int64") for extent in stmt.buffer.shape]
                self.workspaces.append(size_of(shape, str(stmt.buffer.dtype)))
            case tirx.Bind():
                name = self._local(stmt.var)
                self.lines.append(f"  const int64_t {name} RD_UNUSED = {self._text(stmt.value)};")
            case tirx.IfThenElse():
                self._choice(stmt)
            case tirx.For():
                self._loop(stmt)
            case tirx.Evaluate() if op_name(stmt.value) == _LAUNCH:
                self._launch(stmt.value)
            case tirx.Evaluate() if isinstance(stmt.value, prim.IntImm):
                pass
            case _:
                raise _refusal(self.symbol, stmt)

    def _choice(self, stmt: Any) -> None:
        self.lines.append(f"  if ({self._text(stmt.condition)}) {{")
        self._statement(stmt.then_case)
        if stmt.else_case is not None:
            self.lines.append("  } else {")
            self._statement(stmt.else_case)
        self.lines.append("  }")

    def _loop(self, loop: Any) -> None:
        start, extent = self._text(loop.min), self._text(loop.extent)
        name = self._local(loop.loop_var)
        self.lines.append(
            f"  for (int64_t {name} = {start}, end_{name} = {name} + {extent}; {name} < end_{name};"
            f" ++{name}) {{"
        )
        self._statement(loop.body)
        self.lines.append("  }")

    def _launch(self, call: Any) -> None:
        name, *values = call.args
        tags = [str(tag) for tag in call.attrs["launch_params"]]
        own, grid = values[: -len(tags)], dict(zip(tags, values[-len(tags) :], strict=True))
        if "blockIdx.z" in grid:
            raise _refusal(self.symbol, "a third axis of blocks")
        numbers = [self._argument(value) for value in own]
        blocks = [self._text(grid[axis]) if axis in grid else "1" for axis in _AXES]
        self.lines += [
            f"  {{ const int32_t given[] = {{{', '.join(numbers) or '0'}}};",
            f"  rd_launch_grid({self.numbers[str(name.value)]}, given, "
            f"(uint32_t)({blocks[0]}), (uint32_t)({blocks[1]})); }}",
        ]

    def _argument(self, value: Any) -> str:
        if op_name(value) == _DATA or value in self.buffers:
            return f"RD_NUMBER({self._buffer_of(value)})"
        self._number(value)
        return f"(int32_t)({self._text(value)})"

    def _buffer_of(self, data: Any) -> str:
        return self.buffers[data.args[0] if op_name(data) == _DATA else data]

    def _number(self, value: Any) -> str:
        dtype = dtype_of(value)
        if dtype not in _NUMBERS:
            raise _refusal(self.symbol, f"an argument of type {dtype}")
        return dtype

    def _local(self, var: Any) -> str:
        self.names[var] = f"l{len(self.names)}_{identifier(var.name)}"
        return self.names[var]

    def _text(self, value: Any) -> str:
        if op_name(value) == "tirx.tvm_thread_invariant":
            return self._text(value.args[0])
        return expression(value, self.names)


def _refusal(symbol: str, what: Any) -> CodegenError:
    return CodegenError(
        f"{symbol}: a library for WebGPU has no form of {str(what)[:200]}",
        reason="webgpu",
        hint="build it for wasm32-simd",
    )


def launchers(
    prefix: str, hosts: Mapping[str, tirx.PrimFunc], shaders: Sequence[str]
) -> dict[str, Launcher]:
    """The functions of all tensor programs, by name; shaders: their names, in order."""
    numbers = {name: i for i, name in enumerate(shaders)}
    return {name: launcher(f"{prefix}_k_{name}", func, numbers) for name, func in hosts.items()}
