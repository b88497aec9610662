"""Writes `main`, and the functions by which a program calls it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.codegen.standalone.function import Function
from compiler.codegen.standalone.memory import ArenaMemory, tenants
from compiler.codegen.standalone.model import Driver
from compiler.codegen.standalone.private import private_function
from compiler.codegen.standalone.values import TensorValue, tensors_in
from compiler.tir import ranges
from compiler.tir.c_text import axis_expression, element_bytes
from compiler.tir.exprs import op_name
from relaxd.contract.dims.axis_forms import bound_dims
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec

_ALIASES = ("relax.reshape",)


@dataclass(frozen=True)
class Main:
    """The statements of `main`, and those of bind, over the array `dims`.

    ranks, items: of each output: its rank, and the bytes of its elements; shapes: of each output
    the extents that bind knows, "-1" for others.
    """

    run: list[str]
    bind: list[str]
    ranks: tuple[int, ...]
    items: tuple[int, ...]
    shapes: tuple[tuple[str, ...], ...]


def main_function(
    driver: Driver,
    inputs: Sequence[TensorSpec],
    dims: Sequence[Dim],
    written_as: type[Function] = Function,
) -> Main:
    """`main` with weights as its last parameters; raises CodegenError."""
    func = driver.module["main"]
    function = written_as(driver, lambda called: private_function(driver, called))
    function.note_shapes(func)
    _dims(function, func, inputs, bound_dims(inputs, dims))
    function.memory = ArenaMemory(
        driver,
        function.bound,
        function.size,
        tenants(func, function.extents),
        _results(func) if driver.takes_outputs else {},
    )
    result = function.sequence(func.body)
    outputs = list(tensors_in(result))
    types = list(func.ret_ty.fields) if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    items = tuple(element_bytes(str(ty.dtype)) for ty in types)
    for i, (tensor, ty) in enumerate(zip(outputs, types, strict=True)):
        function.lines += _finish(i, tensor, element_bytes(str(ty.dtype)))
    shapes = tuple(
        tuple(text if function.is_early(text) else "-1" for text in tensor.shape)
        for tensor in outputs
    )
    return Main(function.lines, driver.bind, tuple(len(s) for s in shapes), items, shapes)


def _dims(function: Function, func: Any, inputs: Sequence[TensorSpec], dims: Sequence[Dim]) -> None:
    """Names the dims that bind takes, and the parameters."""
    names = {dim.name: f"c->dims[{i}]" for i, dim in enumerate(dims)}
    ranges_by_name = {dim.name: ranges.of_dim(dim) for dim in dims}
    inputs_of = list(zip(func.params, inputs, strict=False))
    # An axis past+seq may stand in an input before the one that has past.
    for param, spec in inputs_of:
        for extent, axis in zip(param.ty.shape.values, spec.shape, strict=True):
            if isinstance(extent, tvm.ir.Var) and extent not in function.names:
                within = ranges.of_axis(axis.tree, ranges_by_name)
                function.define(extent, axis_expression(axis, names), early=True, within=within)
    for i, (param, _) in enumerate(inputs_of):
        shape = tuple(map(function.text, param.ty.shape.values))
        function.values[param] = TensorValue(f"((void *)inputs[{i}])", shape)
    for i, param in enumerate(func.params[len(inputs) :]):
        shape = tuple(str(int(extent)) for extent in param.ty.shape.values)
        function.values[param] = TensorValue(function.driver.weight(i), shape)


def _results(func: Any) -> dict[Any, int]:
    """By variable that holds an allocation, the output that it becomes; each output once."""
    bound = {
        binding.var: binding.value
        for block in func.body.blocks
        for binding in block.bindings
        if hasattr(binding, "value")
    }

    def origin(expr: Any) -> Any:
        while expr in bound:
            value = bound[expr]
            if isinstance(value, tvm.ir.Var):
                expr = value
            elif op_name(value) in _ALIASES:
                expr = value.args[0]
            else:
                break
        return expr

    last = origin(func.body.body)
    result = bound.get(last, last)
    fields = list(result.fields) if isinstance(result, relax.Tuple) else [last]
    outputs: dict[Any, int] = {}
    for i, field in enumerate(fields):
        if isinstance(field, tvm.ir.Var):
            outputs.setdefault(origin(field), i)
    return outputs


def _finish(output: int, tensor: TensorValue, item: int) -> list[str]:
    """States an output's extents, and brings it to where the caller wants it."""
    shape = f"c->shape{output}"
    lines = [f"  {shape}[{axis}] = {text};" for axis, text in enumerate(tensor.shape)]
    rank = len(tensor.shape)
    if tensor.data != f"c->out[{output}]":
        lines.append(
            f"  rd_deliver(c, results, {output}, {tensor.data}, RD_SIZE({item}, {rank}, {shape}));"
        )
    return lines
