"""Counts the work of each kernel in one run of the model, as expressions of the model's dims."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.ir.imported import Ranges
from compiler.passes.framework.base import Phase
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.framework.observers import Observer
from compiler.tir.polynomials import Polynomial, UnknownExtent, polynomial_of, total
from compiler.tir.work import Work, work_of
from relaxd.contract.dims.names import quote_name

_LONGEST = 1000
"""Characters of an expression that is kept."""


@dataclass
class KernelWork(Observer):
    """Observes the pipeline up to the tensor programs, which state what is computed and not how;
    `table` is by kernel.
    """

    ranges: Ranges
    table: dict[str, dict[str, Any]] = field(default_factory=dict)

    def phase_ended(self, phase: Phase, module: tvm.IRModule) -> None:
        """Counts, once the tensor programs are there."""
        if phase is not Phase.TENSOR_PROGRAMS:
            return
        dims = {var: Polynomial.atom(quote_name(dim.name)) for var, dim in self.ranges.items()}
        calls: dict[str, list[Work | None]] = defaultdict(list)
        known: dict[tuple[str, ...], Work | None] = {}
        for kernel, func, arguments in _calls(module):
            calls[kernel].append(_work(kernel, func, arguments, dims, known))
        self.table = {kernel: _row(works) for kernel, works in calls.items()}


def _row(works: list[Work | None]) -> dict[str, Any]:
    """A row of `relaxd.contract.bundle.report.Kernel`."""
    known = [work for work in works if work is not None]
    if len(known) < len(works):
        return {"calls": len(works)}
    flops, moved = str(total(w.flops for w in known)), str(total(w.bytes for w in known))
    fits = max(len(flops), len(moved)) <= _LONGEST
    counts = {"flops": flops, "bytes": moved, "computes": known[0].dtype} if fits else {}
    return {"calls": len(works), **counts}


def _work(
    kernel: str,
    func: tirx.PrimFunc,
    arguments: list[Any],
    dims: Mapping[Any, Polynomial],
    known: dict[tuple[str, ...], Work | None],
) -> Work | None:
    """The work of a call; models repeat layers, so `known` has that of calls at equal dims."""
    try:
        values = _values(func, arguments, dims)
        key = (kernel, *map(str, values.values()))
        if key not in known:
            known[key] = None
            known[key] = work_of(func, values)
        return known[key]
    except UnknownExtent:
        return None


def _values(
    func: tirx.PrimFunc, arguments: list[Any], dims: Mapping[Any, Polynomial]
) -> dict[Any, Polynomial]:
    """The dims of a kernel, from the extents and numbers that a call gives; raises
    UnknownExtent.
    """
    values: dict[Any, Polynomial] = {}
    if len(func.params) != len(arguments):
        raise UnknownExtent("a call of another form")
    for param, argument in zip(func.params, arguments, strict=True):
        if not hasattr(param.ty, "shape"):
            values[param] = polynomial_of(argument, dims)
            continue
        for extent, actual in zip(param.ty.shape, _shape(argument), strict=True):
            if isinstance(extent, tvm.ir.Var) and extent not in values:
                values[extent] = polynomial_of(actual, dims)
    return values


def _shape(ty: Any) -> list[Any]:
    if not isinstance(getattr(ty, "shape", None), relax.ShapeExpr):
        raise UnknownExtent("a tensor of unknown shape")
    return list(ty.shape.values)


def _calls(module: tvm.IRModule) -> Iterator[tuple[str, tirx.PrimFunc, list[Any]]]:
    """Every call of a kernel: its name, and for each parameter a tensor's type or a number."""
    kernels = {
        gvar: func for gvar, func in module.functions.items() if isinstance(func, tirx.PrimFunc)
    }
    for function in module.functions.values():
        if not isinstance(function, relax.Function):
            continue
        for _, call in bindings_within(function.body):
            kernel: Any = call.args[0] if isinstance(call, tvm.ir.Call) and call.args else None
            if kernel in kernels and len(call.args) > 1:
                yield kernel.name_hint, kernels[kernel], _arguments(call)


def _arguments(call: Any) -> list[Any]:
    listed = call.args[1].fields if isinstance(call.args[1], relax.Tuple) else call.args[1:]
    arguments = [_argument(one) for one in listed]
    results = call.ty_args[0] if call.ty_args else call.ty
    # A call in place gives its results in arguments.
    fresh = [] if "inplace" in call.op.name else _tensors(results)
    return [*arguments, *fresh]


def _argument(value: Any) -> Any:
    return value.ty if isinstance(value.ty, relax.TensorType) else value


def _tensors(ty: Any) -> list[Any]:
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
