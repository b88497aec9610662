"""How far a verification reached, and what to mind of it."""

from collections.abc import Mapping, Sequence

from compiler.verify.inputs.inputs import Signature, Trial
from compiler.verify.judge.judged import Judged
from relaxd.contract.bundle.numerics import Verdict
from relaxd.contract.dims.names import option_name, quote_name


def find_greatest_dims(ran: Sequence[Trial]) -> dict[str, int]:
    """The greatest value of each dim at which the library was compared."""
    names = sorted({name for trial in ran for name in trial.point.dims})
    return {name: max(trial.point.dims[name] for trial in ran) for name in names}


def warn_unreached(signature: Signature, greatest: Mapping[str, int]) -> list[str]:
    """A warning for each dim whose range the points do not reach; greatest: its value at them."""
    warnings = []
    for dim in signature.dims:
        top = greatest.get(dim.name)
        if top is not None and dim.highest is None:
            declare = f"declare {option_name(dim.name)}={dim.lowest}:N"
            warnings.append(
                f"{quote_name(dim.name)} has no maximum: verified up to {top}; {declare}"
            )
        elif top is not None and dim.highest is not None and top < dim.highest:
            warnings.append(f"{quote_name(dim.name)} may be {dim.highest}: verified up to {top}")
    return warnings


def warn_unproven(judged: Sequence[Judged]) -> list[str]:
    """A warning for each float output that says little at every point: it is ill-conditioned, or
    the reference is constant.
    """
    warnings = []
    for name in dict.fromkeys(item.output.name for item in judged):
        own = [item for item in judged if item.output.name == name]
        if all(item.verdict is Verdict.INCONCLUSIVE for item in own):
            warnings.append(f"output {name!r} proves nothing: {own[0].why}")
        elif "float" in own[0].output.dtype and all(item.spread.constant for item in own):
            value = f"{own[0].spread.center:.6g}"
            warnings.append(f"output {name!r} proves little: the reference is {value} throughout")
    return warnings
