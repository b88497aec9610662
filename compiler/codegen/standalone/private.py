"""Private Relax functions, the bodies of branches and loops, as C functions."""

from typing import Any

import tvm
from tvm import relax

from compiler.codegen.standalone.function import Function
from compiler.codegen.standalone.memory import BlockMemory
from compiler.codegen.standalone.model import Driver
from compiler.codegen.standalone.values import (
    ShapeValue,
    TensorValue,
    TupleValue,
    Value,
    count_tensors,
)
from compiler.errors import CodegenError
from compiler.tir.ranges import ANY


def private_function(driver: Driver, gvar: Any) -> str:
    """The name of the C function of a private function, written at its first call; raises
    CodegenError.
    """
    name = f"f_{gvar.name_hint}"
    if name not in driver.prototypes:
        parameters = "P *c, const rd_value *given, const int64_t *given_dims, rd_value *r"
        head = f"static int {name}({parameters})"
        driver.prototypes[name] = f"{head};"
        driver.functions.append(f"{head} {{\n" + "\n".join(_body(driver, gvar)) + "\n}")
    return name


def _body(driver: Driver, gvar: Any) -> list[str]:
    func = driver.module[gvar]
    loops = _calls(func, gvar)
    function = Function(driver, lambda called: private_function(driver, called))
    function.memory = BlockMemory(driver, function.size)
    function.note_shapes(func)
    count = sum(count_tensors(param.ty) for param in func.params)
    dims = sum(len(p.ty.values or ()) for p in func.params if isinstance(p.ty, relax.ShapeType))
    if loops:
        check_tail(func, gvar)
        function.own = gvar

        def again(tensors: list[TensorValue], extents: list[str]) -> list[str]:
            return _next(tensors, extents)

        function.again = again
    _parameters(function, func, "a" if loops else "given", "dims" if loops else "given_dims")
    function.assign("r", function.sequence(func.body))
    results = count_tensors(func.ret_ty)
    end = [f"  rd_sweep(&c->own, mark, r, {results});", "  return RELAXD_OK;"]
    start = [
        "  rd_block *const mark = c->own.used;",
        "  int status RD_UNUSED = RELAXD_OK;",
        "  (void)given, (void)given_dims, (void)r;",
    ]
    if not loops:
        return [*start, *function.lines, *end]
    return [
        *start,
        f"  rd_value a[{max(count, 1)}];",
        f"  int64_t dims[{max(dims, 1)}];",
        f"  for (int i = 0; i < {count}; ++i) a[i] = given[i];",
        f"  for (int i = 0; i < {dims}; ++i) dims[i] = given_dims[i];",
        "  for (;;) {",
        *function.lines,
        *end,
        "  }",
    ]


def _next(tensors: list[TensorValue], dims: list[str]) -> list[str]:
    """Statements that begin the next iteration: its state is read before any of it is written."""
    values = ", ".join(tensor.text for tensor in tensors) or "{0}"
    extents = ", ".join(dims) or "0"
    count = len(tensors)
    return [
        f"  const rd_value next[] = {{{values}}};",
        f"  const int64_t next_dims[] = {{{extents}}};",
        f"  rd_sweep(&c->own, mark, next, {count});",
        f"  for (int i = 0; i < {count}; ++i) a[i] = next[i];",
        f"  for (int i = 0; i < {len(dims)}; ++i) dims[i] = next_dims[i];",
        "  continue;",
    ]


def _parameters(function: Function, func: Any, array: str, dims: str) -> None:
    """Names the parameters, and the dims that they define."""
    position = extents = 0
    for param in func.params:
        if isinstance(param.ty, relax.ShapeType):
            known = []
            for dim in param.ty.values or ():
                if isinstance(dim, tvm.ir.Var) and dim not in function.names:
                    function.define(dim, f"{dims}[{extents}]", within=ANY)
                known.append(f"{dims}[{extents}]")
                extents += 1
            function.values[param] = ShapeValue(tuple(known))
            continue
        function.values[param], position = _in_array(array, position, param.ty)
    for param in func.params:
        shape = getattr(param.ty, "shape", None)
        if isinstance(param.ty, relax.TensorType) and isinstance(shape, relax.ShapeExpr):
            value = function.tensor(param)
            for extent, text in zip(shape.values, value.shape, strict=True):
                if isinstance(extent, tvm.ir.Var) and extent not in function.names:
                    function.define(extent, text)


def _in_array(array: str, position: int, ty: Any) -> tuple[Value, int]:
    if isinstance(ty, relax.TupleType):
        fields = []
        for field in ty.fields:
            value, position = _in_array(array, position, field)
            fields.append(value)
        return TupleValue(tuple(fields)), position
    text = f"{array}[{position}]"
    shape = tuple(f"{text}.shape[{axis}]" for axis in range(ty.ndim))
    return TensorValue(f"{text}.data", shape), position + 1


def check_tail(func: Any, gvar: Any) -> None:
    """Raises CodegenError where a function goes on after it has called itself."""
    if _tail(func.body, gvar):
        return
    raise CodegenError(
        f"the function {gvar.name_hint} goes on after it has called itself", reason="tail_call"
    )


def _tail(seq: Any, gvar: Any) -> bool:
    """True if a call of itself is the last that the sequence does, and its result that of the
    sequence.
    """
    if not isinstance(seq, relax.SeqExpr):
        return True
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    result = seq.body
    for position, binding in reversed(list(enumerate(bindings))):
        value = binding.value
        ends = isinstance(value, relax.If) or (
            isinstance(value, tvm.ir.Call) and value.op.same_as(gvar)
        )
        if ends and binding.var.same_as(result):
            inner = not isinstance(value, relax.If) or all(
                _tail(branch, gvar) for branch in (value.true_branch, value.false_branch)
            )
            return inner and not any(_calls(b.value, gvar) for b in bindings[:position])
        if _calls(value, gvar):
            return False
        if isinstance(value, tvm.ir.Var) and binding.var.same_as(result):
            result = value
    return True


def _calls(expr: Any, gvar: Any) -> bool:
    """True if an expression, or the function that it is, calls that function."""
    calls: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.Call) and node.op.same_as(gvar):
            calls.append(node)

    relax.analysis.post_order_visit(expr, visit)
    return bool(calls)
