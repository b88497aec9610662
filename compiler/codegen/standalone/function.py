"""Writes the body of a Relax function as C statements."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.codegen.standalone.memory import ALLOCATE, Memory, Size
from compiler.codegen.standalone.model import Driver
from compiler.codegen.standalone.values import (
    ShapeValue,
    StorageValue,
    TensorValue,
    TupleValue,
    Value,
    count_tensors,
    tensors_in,
)
from compiler.errors import CodegenError
from compiler.passes.lower.functions.c_interface import fill_size
from compiler.tir.c_text import expression, quote
from compiler.tir.exprs import op_name
from compiler.tir.ranges import ANY, OF_TENSORS, Range
from relaxd.contract.dims.axis_forms import identifier
from relaxd.contract.dims.names import with_names

SHAPE_READS = ("relax.tensor_to_shape", "vm.builtin.tensor_to_shape")
"""What reads extents from a tensor."""
VIEWS = ("relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset")
"""What gives a tensor another shape."""
_CHECKS = ("RD_ADD(", "RD_SUB(", "RD_MUL(", "RD_SIZE(", "rd_widen(")
"""What may end a call for its extents."""
_NOTHING = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")


@dataclass
class Function:
    """A function as it is written; `memory` is set right after.

    names: the C text of every dim; bound: those that bind knows as well; ranges: of every dim.
    values: of every variable.
    call_private: gives the name of the C function of a private one. again: statements for a call
    of the function by itself, given the values, where its result is the function's own.
    """

    driver: Driver
    call_private: Callable[[Any], str]
    names: dict[Any, str] = field(default_factory=dict)
    bound: dict[Any, str] = field(default_factory=dict)
    ranges: dict[Any, Range] = field(default_factory=dict)
    values: dict[Any, Value] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    memory: Memory = field(init=False)
    own: Any = None
    again: Callable[[list[TensorValue], list[str]], list[str]] | None = None

    def text(self, expr: Any) -> str:
        """An extent in C."""
        return expression(expr, self.names, self.ranges)

    def size(self, size: Size) -> str:
        """Bytes of a tensor in C."""
        return size.text(self.names, self.ranges)

    def sequence(self, seq: Any) -> Value:
        """Writes the bindings of a sequence; gives the value of its body."""
        if not isinstance(seq, relax.SeqExpr):
            return self.value(seq)
        for block in seq.blocks:
            for binding in block.bindings:
                self._binding(binding)
        return self.value(seq.body)

    def define(self, dim: Any, text: str, early: bool = False, within: Range = OF_TENSORS) -> None:
        """Give a dim its value, which is within a range; early: bind knows it too."""
        self.ranges[dim] = within
        # No name is part of another one.
        name = f"{self.driver.fresh('d')}_{identifier(dim.name)}_"
        line = f"  const int64_t {name} RD_UNUSED = {text};"
        self.names[dim] = name
        self.lines.append(line)
        if early:
            self.bound[dim] = name
            self.driver.bind.append(line)

    def value(self, expr: Any) -> Value:
        """The value of an expression without effects."""
        match expr:
            case relax.ShapeExpr():
                return ShapeValue(tuple(map(self.text, expr.values)))
            case relax.Tuple():
                return TupleValue(tuple(map(self.value, expr.fields)))
            case tvm.ir.GenericConst():
                shape = tuple(str(int(extent)) for extent in expr.value.shape)
                return TensorValue(self.driver.constant(expr), shape)
            case relax.TupleGetItem():
                source = self.value(expr.tuple_value)
                assert isinstance(source, TupleValue)
                field: Value = source.fields[expr.index]
                return field
            case tvm.ir.Var():
                return self.values[expr]
        raise _refusal(f"{type(expr).__name__}", expr)

    def tensor(self, expr: Any) -> TensorValue:
        """The value of a tensor."""
        value = self.value(expr)
        assert isinstance(value, TensorValue), expr
        return value

    def extents(self, shape: Any) -> Sequence[Any]:
        """The extents of a shape that is written out, here or where its variable is bound."""
        return self._shapes[shape] if isinstance(shape, tvm.ir.Var) else list(shape.values)

    _shapes: dict[Any, Sequence[Any]] = field(default_factory=dict)

    def note_shapes(self, function: Any) -> None:
        """Remember which variables are shapes."""

        def visit(node: Any) -> None:
            if isinstance(node, relax.SeqExpr):
                for block in node.blocks:
                    for binding in block.bindings:
                        value = getattr(binding, "value", None)
                        if isinstance(value, relax.ShapeExpr):
                            self._shapes[binding.var] = list(value.values)

        relax.analysis.post_order_visit(function, visit)

    def _binding(self, binding: Any) -> None:
        var, value = binding.var, binding.value
        if isinstance(binding, relax.MatchCast):
            self._match(var, self._evaluate(var, value), binding.ty)
        else:
            self.values[var] = self._evaluate(var, value)

    def _evaluate(self, var: Any, value: Any) -> Value:
        if isinstance(value, relax.If):
            return self._branch(var, value)
        if isinstance(value, tvm.ir.Call):
            return self._call(var, value)
        return self.value(value)

    def _call(self, var: Any, call: Any) -> Value:
        if isinstance(call.op, tvm.ir.GlobalVar):
            if isinstance(self.driver.module[call.op], tirx.PrimFunc):
                return self._kernel(var, call)
            return self._private(var, call)
        name = callee_of(call)
        if name == "relax.memory.alloc_storage":
            return self.memory.storage(var)
        if name in (ALLOCATE, "relax.builtin.alloc_tensor"):
            return self._allocation(var, call, name == ALLOCATE)
        if name in VIEWS:
            return self._view(var, call)
        if name in SHAPE_READS:
            return self._read_shape(var, call)
        if name in ("relax.shape_to_tensor", "vm.builtin.shape_to_tensor"):
            return self._write_shape(var, call)
        if name in _NOTHING:
            return TupleValue(())
        raise _refusal(name, call)

    def _allocation(self, var: Any, call: Any, planned: bool) -> Value:
        shape, dtype = (call.args[2], call.args[3]) if planned else (call.args[0], call.args[1])
        extents = self.extents(shape)
        size = Size.of(extents, str(dtype.value))
        if planned:
            storage = self.values[call.args[0]]
            assert isinstance(storage, StorageValue)
            lines, data = self.memory.tensor(storage, size)
        else:
            lines, data = self.memory.allocate(var, size)
        self._write(lines, self.driver.user(var))
        return TensorValue(data, tuple(map(self.text, extents)))

    def _write(self, lines: Sequence[str], kernel: str) -> None:
        """Statements; where they check extents that follow from values of inputs, an error names
        the nodes of the kernel. What shapes alone decide leaves models of other names one library.
        """
        late = {text for dim, text in self.names.items() if dim not in self.bound}
        checks = any(
            mark in line and any(text in line for text in late)
            for line in lines
            for mark in _CHECKS
        )
        nodes = ", ".join(self.driver.nodes.get(kernel, ()))
        if checks and nodes:
            self.lines.append(f"  c->own.node = {quote(nodes)};")
        self.lines += lines

    def _view(self, var: Any, call: Any) -> Value:
        data = self.tensor(call.args[0]).data
        if op_name(call) == "relax.memory.view" and len(call.args) > 3:
            offset = getattr(call.args[3], "value", None)
            if offset is not None and int(offset) != 0:
                data = f"((void *)((uint8_t *){data} + {int(offset)}))"
        if op_name(call) == "relax.memory.ensure_zero_offset":
            return TensorValue(data, self.tensor(call.args[0]).shape)
        size = Size.of(self.extents(call.args[1]), str(call.args[0].ty.dtype))
        if not size.is_small(self.ranges) and any(dim not in self.bound for dim in size.dims):
            # A tensor of no elements may have any extents.
            text = size.to_checked_c(self.names, self.ranges)
            self._write([f"  (void){text};"], self.driver.user(var))
        return TensorValue(data, tuple(map(self.text, size.extents)))

    def _read_shape(self, var: Any, call: Any) -> Value:
        source, name = self.tensor(call.args[0]), self.driver.fresh("s")
        count = int(var.ty.ndim) if int(var.ty.ndim) >= 0 else int(source.shape[0])
        read = ", ".join(f"((const int64_t *){source.data})[{i}]" for i in range(count))
        self.lines.append(f"  const int64_t {name}[] RD_UNUSED = {{{read or '0'}}};")
        return ShapeValue(tuple(f"{name}[{i}]" for i in range(count)))

    def _write_shape(self, var: Any, call: Any) -> Value:
        shape = self.value(call.args[0])
        assert isinstance(shape, ShapeValue)
        lines, data = self.memory.allocate(var, Size((len(shape.extents),), 8))
        self.lines += lines
        for i, extent in enumerate(shape.extents):
            self.lines.append(f"  ((int64_t *){data})[{i}] = {extent};")
        return TensorValue(data, (str(len(shape.extents)),))

    def _kernel(self, var: Any, call: Any) -> Value:
        kernel = self.driver.kernels[call.op.name_hint]
        arguments = [
            self.tensor(arg).data if kind is None else self.text(arg)
            for kind, arg in zip(kernel.params, call.args, strict=True)
        ]
        extents = [self.tensor(call.args[index]).shape[axis] for index, axis in kernel.dims]
        head = ["c"] if kernel.needs_context else []
        if kernel.needs_scratch:
            self._working_memory(var, call, *fill_size(kernel.scratch, extents, arguments))
            head.append("rd_scratch(&c->own, 0)")
        text = f"{kernel.symbol}({', '.join([*head, *arguments, *extents])})"
        self._write([f'  RD_CALL("{call.op.name_hint}", {text});'], call.op.name_hint)
        return TupleValue(())

    def _working_memory(self, var: Any, call: Any, size: str, needed: Collection[str]) -> None:
        """Makes sure that a call's kernel has so much working memory, which is known where the
        texts `needed` are: by bind, or right here.
        """
        if all(self.is_early(text) for text in needed):
            self.driver.scratch(size)
        else:
            self.driver.need_heap(var)
            lines = [f"  if ((status = rd_widen(&c->own, {size}))) return status;"]
            self._write(lines, call.op.name_hint)

    def is_early(self, text: str) -> bool:
        """True if bind can compute an extent: no dim but its own stands in it."""
        late = {name for dim, name in self.names.items() if dim not in self.bound}
        return not any(name in text for name in late) and "[" not in text

    def _private(self, var: Any, call: Any) -> Value:
        tensors = [t for arg in call.args for t in tensors_in(self.value(arg))]
        shapes = [v for arg in call.args if isinstance(v := self.value(arg), ShapeValue)]
        dims = [extent for shape in shapes for extent in shape.extents]
        count = count_tensors(self.driver.module[call.op].ret_ty)
        if self.again is not None and call.op.same_as(self.own):
            self.lines += self.again(tensors, dims)
            return self._in_array("r", var.ty)
        name = self.call_private(call.op)
        result = self.driver.fresh("v")
        values = ", ".join(t.text for t in tensors) or "{0}"
        self.lines += [
            f"  rd_value {result}[{max(count, 1)}];",
            f"  status = {name}(c, (const rd_value[]){{{values}}}, "
            f"(const int64_t[]){{{', '.join(dims) or '0'}}}, {result});",
            "  if (status) return status;",
        ]
        return self._in_array(result, var.ty)

    def _in_array(self, name: str, ty: Any) -> Value:
        """A value whose tensors are in an array."""
        position = -1

        def value_of(ty: Any) -> Value:
            nonlocal position
            if isinstance(ty, relax.TupleType):
                return TupleValue(tuple(map(value_of, ty.fields)))
            position += 1
            text = f"{name}[{position}]"
            return TensorValue(f"{text}.data", tuple(f"{text}.shape[{i}]" for i in range(ty.ndim)))

        return value_of(ty)

    def _branch(self, var: Any, node: Any) -> Value:
        name = self.driver.fresh("v")
        condition = self.tensor(node.cond).data
        self.lines += [
            f"  rd_value {name}[{max(count_tensors(var.ty), 1)}] RD_UNUSED;",
            f"  if (*(const uint8_t *){condition}) {{",
        ]
        for branch, end in ((node.true_branch, "  } else {"), (node.false_branch, "  }")):
            names, values = dict(self.names), dict(self.values)
            self.assign(name, self.sequence(branch))
            self.lines.append(end)
            self.names, self.values = names, values
        return self._in_array(name, var.ty)

    def assign(self, array: str, value: Value) -> None:
        """Writes the tensors of a value into an array."""
        for i, tensor in enumerate(tensors_in(value)):
            self.lines.append(f"  {array}[{i}] = {tensor.text};")

    def _match(self, var: Any, value: Value, ty: Any) -> None:
        """Defines the dims of the type that are new, and checks the others."""
        self.values[var] = value
        match value:
            case ShapeValue():
                pattern = ty.values
                known = value.extents
            case TensorValue():
                pattern = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else None
                known = value.shape
            case _:
                return
        for axis, (have, want) in enumerate(zip(known, pattern or (), strict=False)):
            if isinstance(want, tvm.ir.Var) and want not in self.names:
                is_shape = isinstance(value, ShapeValue)
                within = ANY if is_shape else OF_TENSORS
                self.define(want, have, early=self.is_early(have) and is_shape, within=within)
            elif have != self.text(want):
                self._check(have, want, ty, axis)

    def _check(self, have: str, want: Any, ty: Any, axis: int) -> None:
        number = str(int(want.value)) if isinstance(want, tirx.IntImm) else ""
        wanted = self.text(want)
        if (message := self.driver.messages.get(number)) is not None:
            failure = f"rd_fail(&c->own, RELAXD_CHECK, {quote(message)})"
        else:
            before, after = _sentence(ty, axis)
            failure = (
                f"rd_differs(&c->own, {quote(before)}, {have}, {quote(after)}, {wanted}, "
                f"{quote(' is expected')})"
            )
        self.lines.append(f"  if ({have} != {wanted}) return {failure};")


def callee_of(value: Any) -> str:
    """The operator, or function of a runtime, that a call calls; empty for anything else."""
    return str(getattr(getattr(value, "op", None), "global_symbol", "")) or op_name(value)


def _sentence(ty: Any, axis: int) -> tuple[str, str]:
    """The text before the extent of a tensor, and between it and the one expected."""
    if isinstance(ty, relax.ShapeType):
        return "extents that the model computes differ: ", f" on axis {axis}, where "
    shape = with_names(",".join(map(str, ty.shape.values)).replace("T.int64", ""))
    return f"a tensor that must be {ty.dtype}[{shape}] has ", f" on axis {axis}, where "


def _refusal(what: str, node: Any) -> CodegenError:
    return CodegenError(
        f"the standalone backend has no form of {what}: {str(node)[:200]}",
        reason="standalone",
        hint="build it with `--flavour vm`",
    )
