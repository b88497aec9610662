"""Tensor programs from TE: a computation over values becomes a PrimFunc that owns its dims, and the
call to it.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tvm_ffi
from tvm import relax, s_tir, te, tirx
from tvm.ir import Expr, GlobalVar

from compiler.ir.graph.values import Tensor
from compiler.ir.shapes import extents as ex
from relaxd.contract.dims.tensors import storage_of

INJECTIVE, OPAQUE = 2, 8
"""TVM's OpPatternKind of a program that reads each element at a place of its own, which fusion
joins to what reads its result, and of one that fusion leaves alone.
"""

CALLS_OUT = "calls_out"
"""Of a program: the custom operator whose code it calls, which is not there before the library is
linked.
"""


def call_program(
    bb: relax.BlockBuilder,
    compute: Callable[..., Any],
    inputs: Sequence[Tensor],
    name: str,
    dims: Collection[tirx.Var],
    attrs: dict[str, Any] | None = None,
    elementwise: bool = False,
) -> tuple[Expr, list[te.Tensor]]:
    """The `call_tir` of a TE computation and its outputs.

    elementwise: each result depends on elements at its own position alone: then the program may be
    fused though it takes dims as numbers, as long as they are in its shapes.

    `compute` may close over extents of `dims`, the variables of the graph. TVM's own emit_te
    renames the dims of the inputs but not those in closures, which leaves the latter unbound; here
    one set of variables is used throughout and renewed at the end.
    """
    placeholders = [
        te.placeholder(
            [ex.prim(extent) for extent in t.shape], storage_of(t.dtype), name=f"p{index}"
        )
        for index, t in enumerate(inputs)
    ]
    tensors = compute(*placeholders)
    outputs = [tensors] if isinstance(tensors, te.Tensor) else list(tensors)
    function = te.create_prim_func([*placeholders, *outputs], "int64")
    bound = {
        axis for t in (*placeholders, *outputs) for axis in t.shape if isinstance(axis, tirx.Var)
    }
    extras = [var for var in _used(function, [*placeholders, *outputs], dims) if var not in bound]
    if extras:
        function = te.create_prim_func([*placeholders, *extras, *outputs], "int64")
    function = s_tir.renew_defs(function).without_attr("global_symbol")
    shaped = set(extras) <= set(_used_by_shapes([*placeholders, *outputs]))
    if extras and not (elementwise and shaped):
        # FuseTIR refuses some functions that get a dim as a number, such as one that no shape has.
        function = function.with_attr("op_pattern", OPAQUE)
    if attrs:
        function = function.with_attrs(attrs)
    program: GlobalVar = bb.add_func(function, name)
    types = [relax.TensorType(list(output.shape), output.dtype) for output in outputs]
    call = relax.call_tir(
        program, [*(t.expr for t in inputs), *extras], types if len(types) > 1 else types[0]
    )
    return call, outputs


def _used(
    function: tirx.PrimFunc, tensors: Sequence[te.Tensor], dims: Collection[tirx.Var]
) -> list[tirx.Var]:
    """The dims that the body or a shape uses, in order of appearance."""
    variables = dict.fromkeys(tirx.analysis.undefined_vars(function.body, list(function.params)))
    variables |= dict.fromkeys(_used_by_shapes(tensors))
    return [var for var in variables if var in dims]


def _used_by_shapes(tensors: Sequence[te.Tensor]) -> list[tirx.Var]:
    variables: dict[tirx.Var, None] = {}
    for tensor in tensors:
        for extent in tensor.shape:
            tvm_ffi.structural_walk(extent, (tirx.Var, variables.setdefault), order="post")
    return list(variables)
