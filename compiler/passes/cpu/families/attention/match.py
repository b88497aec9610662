"""Recognition of the fused attention that `program` writes."""

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.program import STAGES, STEADY
from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.shared.bfloats import is_bfloat16_cast, operand_of
from compiler.passes.cpu.shared.float16 import convert_float16
from compiler.passes.cpu.shared.loop_nest import combine_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir import byte_rows
from compiler.tir.exprs import (
    Expr,
    Table,
    const,
    load,
    loads,
    nodes,
    replace_loads,
    require_int,
    substitute,
)
from compiler.tir.flat import Flattener, analyzer_for
from compiler.tir.loops import Stmt
from compiler.tir.stages import Axis, Program, Stage

_SCORES, _CHANGED, _GREATEST, _POWERS, _TOTAL, _SUMMED, _OUTPUT = STAGES


@dataclass(frozen=True)
class Attention:
    """softmax(changed(query @ key)) @ value for every head of `batch`.

    query, key, value: flat loads over the axes `batch`, `row` (of the query), `column` (of the
    scores), `depth` and `width`, of 16-bit floats and of bytes as float32; key_scale, value_scale:
    the scales of int8 keys and values, None of others; changed: the score after scale, mask and the
    like, where the element of `total` stands for the score itself; target: a load of the result;
    is_bfloat16: True if query, key, value and the weights of the values are rounded to bfloat16;
    steady: True if the order in which a query's sums are added up depends on the query and its keys
    alone, not on the number of queries; safe: True if the weights of a query whose softmax is NaN
    become zeros.
    """

    batch: tuple[Axis, ...]
    row: Axis
    column: Axis
    depth: Axis
    width: Axis
    query: Any
    key: Any
    value: Any
    changed: Expr
    total: Any
    target: Any
    prelude: tuple[Stmt, ...]
    key_scale: Expr | None = None
    value_scale: Expr | None = None
    is_bfloat16: bool = False
    steady: bool = False
    safe: bool = False

    @property
    def head_depth(self) -> int:
        """Elements of a query or a key."""
        return require_int(self.depth.extent)

    @property
    def head_width(self) -> int:
        """Elements of a value."""
        return require_int(self.width.extent)

    @property
    def scaled_key(self) -> Any:
        """The key times its scale."""
        return self.key if self.key_scale is None else self.key * self.key_scale

    @property
    def scaled_value(self) -> Any:
        """The value times its scale."""
        return self.value if self.value_scale is None else self.value * self.value_scale

    def change_score(self, score: Expr, position: Table) -> Expr:
        """The changed score at a position of the axes."""
        return replace_loads(self.changed, self.total, score, position)


def match_attention(program: Program, unit: VectorUnit) -> Attention | Declined:
    """Read the program as a fused attention."""
    names = [stage.name for stage in program.stages]
    if not names or names[0] != _SCORES or names[-1] not in (_OUTPUT, STEADY):
        return Declined("it is no fused attention")
    stages = dict(zip(names, program.stages, strict=True))
    scores, summed, output = stages[_SCORES], stages[_SUMMED], program.stages[-1]
    *batch, row, column = scores.spatial
    axes, width = (*batch, row, column), summed.spatial[-1]
    # Stands for the score in `changed`, so that any score can be put in its place.
    total = tirx.decl_buffer([const(1)], "float32", name="score", scope="local")
    flat, analyzer = Flattener.of(program), analyzer_for((*axes, *scores.reduced))
    # The other stages have axes of their own: everything is read over those of the scores.
    at_scores = _onto((*summed.spatial[:-1], *summed.reduced), axes)
    term, is_bfloat16 = _term(scores), is_bfloat16_cast(_term(scores).a)
    weight, weighed = _sides(stages)
    query, key, value = (
        operand_of(side) if is_bfloat16 else side for side in (term.a, term.b, weighed)
    )
    value = substitute(value, at_scores)
    key, key_scale = byte_rows.split(flat.value(key, analyzer))
    value, value_scale = byte_rows.split(flat.value(value, analyzer))
    return Attention(
        batch=tuple(batch),
        row=row,
        column=column,
        depth=scores.reduced[0],
        width=width,
        query=flat.value(query, analyzer),
        key=convert_float16(key, unit),
        value=convert_float16(value, unit),
        changed=flat.value(_changed_score(stages, axes, total), analyzer),
        total=total,
        target=flat.value(_target(output, summed, (*batch, row, width)), analyzer),
        prelude=tuple(flat.prelude),
        key_scale=key_scale,
        value_scale=value_scale,
        is_bfloat16=is_bfloat16,
        steady=names[-1] == STEADY,
        safe=any(isinstance(node, prim.Select) for node in nodes(weight)),
    )


def _onto(axes: tuple[Axis, ...], replacements: tuple[Axis, ...]) -> Table:
    """The table that replaces the variables of `axes`."""
    return {axis.var: replacement.var for axis, replacement in zip(axes, replacements, strict=True)}


def _term(stage: Stage) -> Any:
    combine = combine_of(stage)
    assert combine is not None
    return combine.term


def _sides(stages: dict[str, Stage]) -> tuple[Any, Any]:
    """(weight, value) of the second matmul, whichever of its factors is which."""
    lhs, rhs = _term(stages[_SUMMED]).a, _term(stages[_SUMMED]).b
    powers = stages[_POWERS].buffer
    first = any(read.source.same_as(powers) for read in loads(lhs))
    return (lhs, rhs) if first else (rhs, lhs)


def _changed_score(stages: dict[str, Stage], axes: tuple[Axis, ...], total: Any) -> Expr:
    """The changed score over the axes of the scores."""
    changed, greatest = stages.get(_CHANGED), stages[_GREATEST]
    if changed is None:  # Inlined into the stages that read it, of which this is one.
        value, own = _term(greatest), greatest.axes
    else:
        value, own = changed.value, changed.axes
    return replace_loads(value, stages[_SCORES].buffer, load(total, [0]), _onto(own, axes))


def _target(output: Stage, summed: Stage, axes: tuple[Axis, ...]) -> Expr:
    """A load of the result over these axes: the last stage may have another order of axes."""
    # The only load of the results shows in which order the output has their axes.
    (weighed,) = (read for read in loads(output.value) if read.source.same_as(summed.buffer))
    axes_by_index = dict(zip(weighed.indices, [axis.var for axis in axes], strict=True))
    return load(output.buffer, [substitute(index, axes_by_index) for index in output.indices])
