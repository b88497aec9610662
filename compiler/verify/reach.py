"""How far a verification reached, and what to mind of it."""

from collections.abc import Sequence

from compiler.verify.inputs.inputs import Signature, Trial
from compiler.verify.judge.judged import Judged
from relaxd.contract.bundle.numerics import Verdict
from relaxd.contract.dims.names import option_name, quote_name


def reached(ran: Sequence[Trial]) -> dict[str, int]:
    """The greatest value of each dim at which the library was compared."""
    names = sorted({name for trial in ran for name in trial.point.dims})
    return {name: max(trial.point.dims[name] for trial in ran) for name in names}


def unbounded(signature: Signature, ran: Sequence[Trial]) -> list[str]:
    """A warning for each dim whose range the points do not reach."""
    greatest, found = reached(ran), []
    for dim in signature.dims:
        top = greatest.get(dim.name)
        if top is not None and dim.highest is None:
            declare = f"declare {option_name(dim.name)}={dim.lowest}:N"
            found.append(f"{quote_name(dim.name)} has no maximum: verified up to {top}; {declare}")
        elif top is not None and dim.highest is not None and top < dim.highest:
            found.append(f"{quote_name(dim.name)} may be {dim.highest}: verified up to {top}")
    return found


def unproven(judged: Sequence[Judged]) -> list[str]:
    """A warning for each float output that says little at every point: it hangs on the last bits of
    what it is computed from, or the reference is constant.
    """
    found = []
    for name in dict.fromkeys(item.output.name for item in judged):
        own = [item for item in judged if item.output.name == name]
        if all(item.verdict is Verdict.INCONCLUSIVE for item in own):
            found.append(f"output {name!r} proves nothing: {own[0].why}")
        elif "float" in own[0].output.dtype and all(item.spread.constant for item in own):
            value = f"{own[0].spread.center:.6g}"
            found.append(f"output {name!r} proves little: the reference is {value} throughout")
    return found
