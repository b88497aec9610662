"""Matmuls by matrices of few bits, as `compiler.passes.pack.nbits` writes them."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm
from tvm.ir.prim import expr as prim

from compiler.ir.ops.quantized.block_matmul import HALF
from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.shared.reduction import Epilogue, read_anchored
from compiler.targets.architecture import IntegerDot
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, as_int, const, dtype_of, loads, require_int, substitute
from compiler.tir.flat import analyzer_for, stride
from compiler.tir.loops import Stmt
from compiler.tir.stages import Axis, Program


class Form(NamedTuple):
    """bits: of a number; rounded: whether the left side is rounded to 8 bits, block by block."""

    bits: int
    rounded: bool


_STAGES = {
    Form(4, False): "nbits_product",
    Form(8, False): "bytes_product",
    Form(4, True): "rounded_nbits_product",
    Form(8, True): "rounded_bytes_product",
    Form(HALF, False): "halves_product",
}
_FORMS = {name: form for form, name in _STAGES.items()}
BYTES = 4
"""Bytes of a word, which holds 4 or 8 numbers of one column."""


def stage_of(form: Form) -> str:
    """Name of the program's stage, by which the kernel is found."""
    return _STAGES[form]


def product_of(unit: VectorUnit) -> IntegerDot | None:
    """The instruction for rows of 8-bit integers, None without one; that of a `BytePairUnit` adds
    to nothing.
    """
    # One that shifts its left side could only take 7 bits of it.
    usable = (one for one in unit.integer_dots if one.group == BYTES and one.adds)
    pairs = None
    if unit.byte_pairs is not None:
        pairs = IntegerDot(unit.byte_pairs.multiply, BYTES, "int8", "int8", adds=False)
    return next(usable, pairs)


@dataclass(frozen=True)
class NBits:
    """epilogue(sum over `along` of source[place + along] * weights) for `rows` x `column`.

    numbers: flat, of shape `packed` [panels, blocks, words, width, 4]; scales, zeros: flat
    [panels, blocks, width], the bits of float16 where they are uint16, zeros None where each is
    half of the range, both where numbers are float16: a word is then one of them.
    """

    form: Form
    rows: tuple[Axis, ...]
    column: Axis
    depth: int
    source: Any
    place: Expr
    numbers: Any
    packed: tuple[int, ...]
    scales: Any
    zeros: Any
    epilogue: Epilogue
    prelude: tuple[Stmt, ...]

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return require_int(self.column.extent)

    @property
    def panels(self) -> int:
        """Panels, the last one of which may be part empty."""
        return self.packed[0]

    @property
    def blocks(self) -> int:
        """Blocks of the depth, the last one of which may be part empty."""
        return self.packed[1]

    @property
    def words(self) -> int:
        """Words of a column in a block."""
        return self.packed[2]

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.packed[3]

    @property
    def each(self) -> int:
        """Numbers of a word."""
        return 1 if self.form.bits == HALF else 32 // self.form.bits

    @property
    def block(self) -> int:
        """Numbers of a column in a block."""
        return self.words * self.each

    @property
    def signed(self) -> bool:
        """Whether 8-bit numbers and their zero points are stored less 128."""
        return dtype_of(self.numbers) == "int8"

    @property
    def added(self) -> bool:
        """Whether `zeros` are what is added behind the scale, not subtracted before it."""
        return self.zeros is not None and dtype_of(self.zeros) == "uint16"


def match_nbits(program: Program, unit: VectorUnit) -> NBits | Declined:
    """The program as such, with whatever was fused behind it."""
    form = _FORMS.get(program.stages[0].name)
    anchored = None if form is None else read_anchored(program)
    if form is None or anchored is None:
        return Declined("its weights are not packed numbers of few bits")
    *rows, column = anchored.anchor.spatial
    along = anchored.anchor.reduced[0]
    left = anchored.combine.term.a
    if not isinstance(left, tvm.ir.TensorLoad) or as_int(column.extent) is None:
        return Declined("its left side is computed, not read")
    if not anchored.epilogue.in_vectors(column.var):
        return Declined("what follows the matmul cannot be computed in vectors of columns")
    views, analyzer = anchored.flat.views, analyzer_for(anchored.anchor.axes)
    offset = anchored.flat.offset(left.source, list(left.indices), analyzer)
    if as_int(stride(offset, along.var)) != 1:
        return Declined("its left side is not contiguous along the depth")
    held = {len(one.source.shape): one.source for one in loads(anchored.combine.term.b)}
    numbers = held[5]
    halves = form.bits == HALF
    scales, *zeros = [None] if halves else _beside(anchored.combine.term.b)
    return NBits(
        form=form,
        rows=tuple(rows),
        column=column,
        depth=require_int(along.extent),
        source=views[left.source],
        place=analyzer.simplify(substitute(offset, {along.var: const(0)})),
        numbers=views[numbers],
        packed=tuple(map(require_int, numbers.shape)),
        scales=None if halves else views[scales],
        zeros=views[zeros[0]] if zeros else None,
        epilogue=anchored.epilogue.over(rows),
        prelude=tuple(anchored.flat.prelude),
    )


def _beside(real: Any) -> list[Any]:
    """The scales and, where there are any, the zero points of (number - zero) * scale, or what is
    added in number * scale + added.
    """
    if isinstance(real, prim.Add):
        return [*_tables(real.a), *_tables(real.b)]
    return [*_tables(real.b), *_tables(real.a)]


def _tables(real: Any) -> list[Any]:
    """The tables of scales or zero points that are read; a float16 is read by its parts."""
    tables: list[Any] = []
    for one in loads(real):
        if len(one.source.shape) == 3 and not any(one.source.same_as(other) for other in tables):
            tables.append(one.source)
    return tables


def middle_of(nbits: NBits) -> int:
    """The zero point of numbers that have none of their own, as they are stored."""
    return 0 if nbits.signed else 1 << (nbits.form.bits - 1)
