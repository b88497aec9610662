"""Programs that write along one axis and read along another."""

from compiler.passes.cpu.families.family import Family
from compiler.passes.cpu.families.transpose import plan
from compiler.passes.cpu.families.transpose.emit import emit_permute
from compiler.passes.cpu.families.transpose.match import match_permute

TRANSPOSE = Family(
    name="transpose",
    summary="elementwise programs that write along one axis and read along another",
    match=match_permute,
    tile=lambda match, unit: f"{plan.READ}x{plan.WRITTEN}, {plan.READ} along the axis that is read",
    emit=emit_permute,
)
