"""Closes the function under construction: names the axes of its outputs and finishes the module."""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from compiler.ir.graph.blocks import in_blocks
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.draws import SEED
from compiler.ir.graph.values import Value
from compiler.ir.imported import Imported
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.index_bounds import Limits
from compiler.ir.shapes.symbols import axis_of
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.names import identifier_of
from relaxd.contract.dims.tensors import TensorSpec


def close(b: Builder, outputs: Sequence[tuple[str, Value]]) -> tuple[TensorSpec, ...]:
    """Emit the function's result as one relax.Tuple; an extent that the contract cannot express
    becomes a named dim.
    """
    tensors, specs = [], []
    for name, value in outputs:
        tensor = b.tensor(value)
        named = [_named(b, extent) for extent in tensor.shape]
        if any(fresh for _, _, fresh in named):
            tensor = b.adopt(tensor.expr, [extent for _, extent, _ in named])
        tensors.append(tensor)
        specs.append(TensorSpec(name, value.dtype, tuple(axis for axis, _, _ in named)))
    b.bb.emit_func_output(relax.Tuple([tensor.expr for tensor in tensors]))
    return tuple(specs)


def _named(b: Builder, extent: Extent) -> tuple[Axis, Extent, bool]:
    axis = None if b.facts.has_integers(extent) else axis_of(extent)
    if axis is not None:
        return axis, extent, False
    symbol = b.symbol(extent, "out")
    named = axis_of(symbol)
    assert named is not None, "a symbol is a dim or a number"
    return named, symbol, True


def finish(
    b: Builder,
    inputs: Sequence[TensorSpec],
    outputs: tuple[TensorSpec, ...],
    bounds: Limits,
    **more: Any,
) -> Imported:
    """Return the import of a model, with its module finished; more: further fields of it."""
    return Imported(
        _finished(b),
        (*inputs, SEED) if b.random else tuple(inputs),
        outputs,
        tuple(b.facts.dims.values()),
        b.facts.ranges,
        bounds,
        nodes=b.origins.labels,
        **more,
    )


def _finished(b: Builder) -> tvm.IRModule:
    """Finish the module: put bindings into dataflow blocks, and the dims' upper bounds on `main`,
    where TVM's memory planner reads them.
    """
    module = in_blocks(b.bb.finalize())
    if not b.random:
        module["main"] = _without_seed(module["main"])
    bounds = {
        identifier_of(dim.name): dim.highest
        for dim in b.facts.dims.values()
        if dim.highest is not None
    }
    main = module["main"].with_attr("tir_var_upper_bound", bounds) if bounds else module["main"]
    module["main"] = b.checks.attach_to(main)
    return module


def _without_seed(main: relax.Function) -> relax.Function:
    return relax.Function(main.params[:-1], main.body, main.ret_ty, main.is_pure, main.attrs)
