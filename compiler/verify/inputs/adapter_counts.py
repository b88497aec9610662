"""How many adapters a library is tried with: each takes megabytes of inputs, and their count
decides nothing but where one lies.
"""

from dataclasses import replace

from compiler.verify.inputs.inputs import Signature
from relaxd.contract.bundle.adapters import Adapters
from relaxd.contract.dims.dims import Dim

_MOST = 2


def with_few_adapters(signature: Signature, adapters: Adapters | None) -> Signature:
    """The signature with at most two adapters, or the least that its dim admits."""
    if adapters is None:
        return signature
    stack = next(spec for spec in signature.inputs if spec.name == adapters.ranks)
    count = stack.shape[0].symbol
    dims = [_limit(dim) if dim.name == count else dim for dim in signature.dims]
    return replace(signature, dims=tuple(dims))


def _limit(dim: Dim) -> Dim:
    most = max(_MOST, dim.lowest)
    return replace(dim, max=most if dim.highest is None else min(most, dim.highest), opt=None)
