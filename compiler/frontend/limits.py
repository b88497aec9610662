"""Limits dims to the lengths that a model has positions for."""

from collections.abc import Sequence
from dataclasses import replace

from compiler.errors import ImportFailed
from compiler.ir.encoders.design import Limit
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import option_name
from relaxd.contract.request import CompileRequest


def within_limits(limits: Sequence[Limit], request: CompileRequest) -> CompileRequest:
    """The request with the dims at most as large as the limits. Raises ImportFailed for a dim that
    is declared larger.
    """
    dims = {dim.name: dim for dim in request.dims}
    for limit in limits:
        axis = _axis_of(limit, request)
        name = axis.symbol
        largest = axis.size if name is None else dims.get(name, Dim(name)).max
        if largest is not None and largest > limit.most:
            raise _too_large(limit, name, largest)
        if name is not None and largest is None:
            dim = dims.get(name, Dim(name))
            if (least := max(dim.lowest, dim.opt or 0)) > limit.most:
                raise _too_large(limit, name, least)
            dims[name] = replace(dim, max=limit.most)
    return replace(request, dims=tuple(sorted(dims.values())))


def _axis_of(limit: Limit, request: CompileRequest) -> Axis:
    for spec in request.inputs:
        if spec.name == limit.input and limit.axis < len(spec.shape):
            return spec.shape[limit.axis]
    return Axis.of_dim(limit.dim)


def _too_large(limit: Limit, name: str | None, size: int) -> ImportFailed:
    example = f"--dim {option_name(name)}=1:{limit.most}" if name else f"a size up to {limit.most}"
    return ImportFailed(
        f"the model has positions for {limit.most} tokens, axis {limit.axis} of "
        f"{limit.input!r} may be {size}",
        reason="dim_range",
        field=f"dims.{name}" if name else f"inputs.{limit.input}",
        hint=f"declare {example}",
    )
