"""Makes C functions of tensor programs: pointers and numbers in, working memory and threads by way
of arguments, so that no function refers to a runtime or to a global variable.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import PointerType
from tvm.tirx.stmt import ForKind
from tvm_ffi import structural_map, structural_walk

from compiler.errors import CodegenError
from compiler.passes.framework.attributes import FUNCTION
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property
from compiler.passes.lower.functions.c_interface import (
    Kernel,
    Task,
    extents_of,
    placeholders_of,
    take_symbol,
)
from compiler.passes.lower.functions.plain_functions import plain_function, unpack
from compiler.passes.lower.functions.scratch import Scratch
from compiler.passes.lower.loops.twin_loops import is_serial_twin, loop_as, takes_shares
from compiler.tir.c_text import expression
from compiler.tir.exprs import const, dtype_of, op_name
from compiler.tir.loops import TAKE, Stmt, seq
from compiler.tir.ranges import OF_TENSORS


@dataclass(frozen=True)
class MakeCFunctions(ModulePass):
    """Replaces each tensor program by a C function and one for each of its parallel loops; the
    attribute `relaxd.function` of the first states how it is called.

    prefix: begins the symbol of the function by which threads take shares.
    """

    prefix: str = ""
    name = "make_c_functions"
    phase = Phase.FUNCTIONS
    requires = (Property.SYMBOLS, Property.FLAT_BUFFERS, Property.NO_VECTOR_LOOPS)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program; raises CodegenError."""
        plain = Plain(self.prefix)
        for gvar, func in module.functions.items():
            kernel = plain.kernel(func)
            described = json.dumps({"name": gvar.name_hint, "kernel": asdict(kernel)})
            function = plain.functions[kernel.symbol]
            plain.functions[kernel.symbol] = function.with_attr(FUNCTION, described)
        return tvm.IRModule(plain.functions)


def c_functions_of(module: tvm.IRModule) -> dict[str, Kernel]:
    """How the functions of a result of `MakeCFunctions` are called, by the names of the tensor
    programs that they were.
    """
    table: dict[str, Kernel] = {}
    for func in module.functions.values():
        if FUNCTION in func.attrs:
            document = json.loads(str(func.attrs[FUNCTION]))
            table[document["name"]] = Kernel.of_json(document["kernel"])
    return table


@dataclass
class Plain:
    """Converts tensor programs; `functions` are they and their tasks."""

    prefix: str
    functions: dict[str, tirx.PrimFunc] = field(default_factory=dict)

    def kernel(self, func: tirx.PrimFunc) -> Kernel:
        """Adds the function and its tasks; raises CodegenError."""
        symbol = str(func.attrs["global_symbol"])
        body = func.body
        pointers, declared, params = unpack(func.params)
        origins = extents_of(func.params)
        free = [
            var
            for var in tirx.analysis.undefined_vars(seq(*declared, body), pointers)
            if var not in func.params
        ]
        for var in free:
            if var not in origins:
                raise CodegenError(f"{symbol}: {var} is no extent of an argument", reason="extent")
        scalars = {v: i for i, v in enumerate(func.params) if not hasattr(v.ty, "shape")}
        context = tirx.Var("context", PointerType(tvm.ir.PrimType("int8")))
        base, pointer = _base()
        known = Scratch(base, frozenset([*free, *scalars]))
        writer = _Body(self, symbol, func.attrs, context, known)
        body = seq(*declared, writer.statement(body))
        kernel = Kernel(
            symbol,
            params,
            tuple(origins[var] for var in free),
            tuple(dtype_of(var) for var in free),
            expression(
                writer.scratch.bytes,
                placeholders_of(free, scalars),
                dict.fromkeys(free, OF_TENSORS),
            ),
            tuple(writer.tasks),
        )
        head = [context] if kernel.needs_context else []
        head += [pointer] if kernel.needs_scratch else []
        own = [tirx.DeclBuffer(base, data=pointer)]
        if not kernel.needs_scratch:
            # Its tasks have none either, and take a pointer all the same.
            own = [tirx.Bind(pointer, _null(pointer)), *own] if kernel.tasks else []
        self.add(symbol, [*head, *pointers, *free], seq(*own, body), func.attrs)
        return kernel

    def add(self, symbol: str, params: list[Any], body: Stmt, attrs: Any) -> None:
        """Add a function of these parameters that returns 0."""
        function = plain_function(params, body, attrs)
        self.functions[symbol] = function.with_attr("global_symbol", symbol)


@dataclass
class _Body:
    """Rewrites the statements of one kernel: allocations, and parallel loops into tasks.

    arguments: the variables that the last task takes.
    """

    plain: Plain
    symbol: str
    attrs: Any
    context: Any
    scratch: Scratch
    in_task: bool = False
    loops: int = 0
    tasks: list[Task] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)

    def statement(self, stmt: Stmt) -> Stmt:
        """The statement without allocations from a heap, and without parallel loops."""
        match stmt:
            case tirx.SeqStmt():
                return seq(*(self.statement(part) for part in stmt.seq))
            case tirx.AttrStmt() if takes_shares(stmt):
                return self.statement(self._take(stmt.body))
            case tirx.AttrStmt():
                return tirx.AttrStmt(
                    stmt.node, stmt.attr_key, stmt.value, self.statement(stmt.body)
                )
            case tirx.IfThenElse():
                return self._choice(stmt)
            case tirx.While():
                return tirx.While(stmt.condition, self._repeat(stmt.body))
            case tirx.For() if stmt.kind == ForKind.PARALLEL and not self.in_task:
                return self._launch(stmt)
            case tirx.For():
                kind = ForKind.SERIAL if stmt.kind == ForKind.PARALLEL else stmt.kind
                return loop_as(stmt, kind, self._repeat(stmt.body))
            case tirx.AllocBuffer():
                return self.scratch.allocate(stmt)
            case tirx.Bind():
                self.scratch.bind(stmt)
            case tirx.BufferStore():
                self.scratch.store(stmt)
        return stmt

    def _repeat(self, body: Stmt) -> Stmt:
        self.loops += 1
        repeated = self.statement(body)
        self.loops -= 1
        return repeated

    def _choice(self, stmt: Any) -> Stmt:
        """Branches share memory where a run of the kernel takes one of them alone."""
        before = self.scratch.bytes
        then = self.statement(stmt.then_case)
        if self._is_whole(stmt):
            return tirx.IfThenElse(stmt.condition, then, self._call_task())
        other, taken = None, self.scratch.bytes
        if stmt.else_case is not None:
            if not self.loops:
                self.scratch.bytes = before
            other = self.statement(stmt.else_case)
            self.scratch.reserve(taken)
        return tirx.IfThenElse(stmt.condition, then, other)

    def _take(self, body: Stmt) -> Stmt:
        """The code of a parallel loop with the library's own way to take shares."""

        def renamed(node: Any) -> Any:
            if op_name(node) != "tirx.call_extern" or str(node.args[0].value) != TAKE:
                return node
            return tirx.call_extern("int64", take_symbol(self.plain.prefix), *node.args[1:])

        return structural_map(body, ((tvm.ir.Call, renamed),))

    def _launch(self, loop: Any) -> Stmt:
        index, count = tirx.Var("index", "int32"), tirx.Var("count", "int32")
        base, pointer = _base()
        inner = _Body(self.plain, self.symbol, self.attrs, self.context, self.scratch, True)
        outer_base, self.scratch.base = self.scratch.base, base
        inner.loops = self.loops
        body = inner.statement(_share(loop, index, count))
        self.scratch.base = outer_base
        free = list(tirx.analysis.undefined_vars(body, [index, count, base]))
        pointers, declared, params = unpack(free)
        number = len(self.tasks)
        flags = next(
            (position for position, var in enumerate(free) if var.same_as(self._flags(loop))), None
        )
        task = Task(f"{self.symbol}_task{number}", f"{self.symbol}_launch{number}", params, flags)
        self.tasks.append(task)
        view = tirx.DeclBuffer(base, data=pointer)
        program = seq(view, *declared, body)
        self.plain.add(task.symbol, [index, count, pointer, *pointers], program, self.attrs)
        self.arguments = free
        return _check(tirx.call_extern("int32", task.launch, self.context, *map(_passed, free)))

    def _is_whole(self, stmt: Any) -> bool:
        """Checks that the other branch does what the task that was made last does, of what is known
        there.
        """
        if self.in_task or not is_serial_twin(stmt.then_case, stmt.else_case):
            return False
        flags = self.tasks[-1].flags
        taken = [var for position, var in enumerate(self.arguments) if position != flags]
        return not any(var.same_as(one) for var in taken for one in _declare(stmt.then_case))

    def _call_task(self) -> Stmt:
        """Calls the last task for all of its loop: the serial half would be the same code again."""
        task, arguments = self.tasks[-1], [_passed(var) for var in self.arguments]
        if task.flags is not None:
            arguments[task.flags] = _null(arguments[task.flags])
        counts = tirx.const(0, "int32"), tirx.const(task.alone, "int32")
        call = tirx.call_extern("int32", task.symbol, *counts, self.scratch.base.data, *arguments)
        return tirx.Evaluate(call)

    def _flags(self, loop: Any) -> Any:
        """The buffer of flags by which the loop's workers take shares, if they do."""
        flags: list[Any] = []

        def take(node: Any) -> None:
            named = str(node.args[0].value) if op_name(node) == "tirx.call_extern" else ""
            if named == take_symbol(self.plain.prefix):
                flags.append(node.args[1].args[0].source)

        structural_walk(loop.body, (tvm.ir.Call, take), order="pre")
        return flags[0] if flags else None


def _check(call: Any) -> Stmt:
    """The call, after which the kernel ends with -1 if it gave another status than 0: of TVM's ways
    to end a function, one alone gives anything but 0.
    """
    failed = call != tirx.const(0, "int32")
    ends = tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_throw_last_error"))
    return tirx.IfThenElse(failed, ends, None)


def _share(loop: Any, index: Any, count: Any) -> Stmt:
    """The loop's iterations from index/count of them on to (index + 1)/count."""
    dtype = dtype_of(loop.loop_var)
    extent, parts = loop.extent.astype("int64"), count.astype("int64")
    start = tirx.truncdiv(index.astype("int64") * extent, parts)
    end = tirx.truncdiv((index.astype("int64") + const(1)) * extent, parts)
    return tirx.For(
        loop.loop_var,
        loop.min + start.astype(dtype),
        (end - start).astype(dtype),
        ForKind.SERIAL,
        loop.body,
    )


def _declare(stmt: Stmt) -> list[Any]:
    """The variables that the statements before a statement's last part declare."""
    parts = stmt.seq[:-1] if isinstance(stmt, tirx.SeqStmt) else []
    buffers = [one.buffer for one in parts if isinstance(one, (tirx.AllocBuffer, tirx.DeclBuffer))]
    return [*buffers, *(one.var for one in parts if isinstance(one, tirx.Bind))]


def _passed(var: Any) -> Any:
    """A variable as an argument: a buffer by its address."""
    return var.data if hasattr(var.ty, "shape") else var


def _null(like: Any) -> Any:
    """A null pointer of the type of another."""
    return tvm.ir.Call("tirx.reinterpret", [const(0)], ret_ty=like.ty)


def _base() -> tuple[Any, Any]:
    """A view of scratch memory as bytes, and the pointer to it."""
    view = tirx.decl_buffer([1], "int8", name="scratch", data_alignment=64)
    return view, tirx.Var("scratch_data", PointerType(view.ty.dtype, view.ty.storage_scope))
