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

from compiler.errors import CodegenError
from compiler.passes.framework.attributes import FUNCTION
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property
from compiler.passes.lower.functions.c_interface import (
    Kernel,
    Task,
    extents_of,
    placeholders_of,
)
from compiler.passes.lower.functions.plain_functions import plain_function, unpack
from compiler.passes.lower.functions.scratch import Scratch
from compiler.tir.building import emit, otherwise, statements, when
from compiler.tir.c_text import expression
from compiler.tir.exprs import const, dtype_of
from compiler.tir.loops import PARALLEL_IF, Stmt, over_range, parallel_loop, replace_loop, seq
from compiler.tir.ranges import OF_TENSORS


@dataclass(frozen=True)
class MakeCFunctions(ModulePass):
    """Replaces each tensor program by a C function and one for each of its parallel loops; the
    attribute `relaxd.function` of the first states how it is called.
    """

    name = "make_c_functions"
    phase = Phase.FUNCTIONS
    requires = (Property.SYMBOLS, Property.FLAT_BUFFERS, Property.NO_VECTOR_LOOPS)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program; raises CodegenError."""
        plain = Plain()
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
    """Rewrites the statements of one kernel: allocations, and parallel loops into tasks."""

    plain: Plain
    symbol: str
    attrs: Any
    context: Any
    scratch: Scratch
    in_task: bool = False
    loops: int = 0
    tasks: list[Task] = field(default_factory=list)

    def statement(self, stmt: Stmt) -> Stmt:
        """The statement without allocations from a heap, and without parallel loops."""
        match stmt:
            case tirx.SeqStmt():
                return seq(*(self.statement(part) for part in stmt.seq))
            case tirx.AttrStmt() if str(stmt.attr_key) == PARALLEL_IF:
                tasks = parallel_loop(stmt)
                if tasks is None:
                    return self.statement(stmt.body)
                return self._parallel(stmt.value, *tasks)
            case tirx.AttrStmt():
                return tirx.AttrStmt(
                    stmt.node, stmt.attr_key, stmt.value, self.statement(stmt.body)
                )
            case tirx.IfThenElse():
                return self._choice(stmt)
            case tirx.While():
                return tirx.While(stmt.condition, self._repeat(stmt.body))
            case tirx.For() if stmt.kind == ForKind.PARALLEL:
                serial = replace_loop(stmt, kind=ForKind.SERIAL)
                return self._parallel(tirx.IntImm("bool", 1), [], serial)
            case tirx.For():
                return replace_loop(stmt, body=self._repeat(stmt.body))
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
        other, taken = None, self.scratch.bytes
        if stmt.else_case is not None:
            if not self.loops:
                self.scratch.bytes = before
            other = self.statement(stmt.else_case)
            self.scratch.reserve(taken)
        return tirx.IfThenElse(stmt.condition, then, other)

    def _parallel(self, condition: Any, before: list[Stmt], loop: Any) -> Stmt:
        """A loop over the threads where the condition holds: its iterations are a function, and
        either the host's threads or the kernel calls it. Within such a loop it is serial.
        """
        before = [self.statement(stmt) for stmt in before]
        if self.in_task:
            return seq(*before, self.statement(loop))
        task, arguments = self._task(loop)
        passed, extent = [_passed(var) for var in arguments], loop.extent.astype("int64")
        launch = tirx.call_extern("int32", task.launch, self.context, extent, *passed)
        alone = tirx.call_extern(
            "int32", task.symbol, const(0), extent, self.scratch.base.data, *passed
        )
        with statements() as calls:
            with when(condition):
                emit(_check(launch))
            with otherwise():
                emit(_check(alone))
        return seq(*before, calls.stmt)

    def _task(self, loop: Any) -> tuple[Task, list[Any]]:
        """Adds the function of the loop's iterations; returns it, and the variables that it takes
        beside the first iteration, where they end, and scratch memory.
        """
        first, end = tirx.Var("first", "int64"), tirx.Var("end", "int64")
        base, pointer = _base()
        inner = _Body(self.plain, self.symbol, self.attrs, self.context, self.scratch, True)
        outer_base, self.scratch.base = self.scratch.base, base
        inner.loops = self.loops
        body = inner.statement(over_range(loop, first, end))
        self.scratch.base = outer_base
        arguments = list(tirx.analysis.undefined_vars(body, [first, end, base]))
        pointers, declared, params = unpack(arguments)
        number = len(self.tasks)
        task = Task(f"{self.symbol}_task{number}", f"{self.symbol}_launch{number}", params)
        self.tasks.append(task)
        body = seq(tirx.DeclBuffer(base, data=pointer), *declared, body)
        self.plain.add(task.symbol, [first, end, pointer, *pointers], body, self.attrs)
        return task, arguments


def _check(call: Any) -> Stmt:
    """The call, after which the kernel ends with -1 if it gave another status than 0: of TVM's ways
    to end a function, one alone gives anything but 0.
    """
    failed = call != tirx.const(0, "int32")
    ends = tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_throw_last_error"))
    return tirx.IfThenElse(failed, ends, None)


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
