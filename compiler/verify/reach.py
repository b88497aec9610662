"""How far a verification reached, and what to mind of it."""

from collections.abc import Sequence

from compiler.verify.inputs import Signature, Trial
from compiler.verify.judged import Judged
from relaxd.contract.names import option_name, quote_name


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
    """A warning for each float output whose values say little at every point."""
    found = []
    for name in dict.fromkeys(item.output.name for item in judged):
        own = [item.difference for item in judged if item.output.name == name]
        if all(difference.undecided for difference in own):
            found.append(f"output {name!r}: {own[0].undecided}, too little to prove anything")
    return found
