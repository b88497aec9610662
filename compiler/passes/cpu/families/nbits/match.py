"""Recognition of matmuls by block-wise quantized weights, as `compiler.passes.pack.nbits` writes
them.
"""

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
    """bits: of a weight; quantized_rows: True if the left side is quantized to 8 bits, per block;
    codes: True if weights are codes of a codebook.
    """

    bits: int
    quantized_rows: bool
    codes: bool = False


_STAGES = {
    Form(4, False): "nbits_product",
    Form(8, False): "bytes_product",
    Form(4, True): "rounded_nbits_product",
    Form(8, True): "rounded_bytes_product",
    Form(HALF, False): "halves_product",
    Form(4, False, codes=True): "codes_product",
}
_FORMS = {name: form for form, name in _STAGES.items()}
BYTES = 4
"""Bytes of a word, which holds 4 or 8 weights of one column."""


def stage_of(form: Form) -> str:
    """Name of the program's stage, by which the kernel is found."""
    return _STAGES[form]


def instruction_of(unit: VectorUnit) -> IntegerDot | None:
    """The dot product instruction for rows of 8-bit integers, None without one; that of a
    `BytePairUnit` does not accumulate.
    """
    # An instruction for which the left side is shifted takes only 7 bits of it.
    instructions = (
        instruction
        for instruction in unit.integer_dots
        if instruction.group == BYTES and instruction.adds
    )
    pairs = None
    if unit.byte_pairs is not None:
        pairs = IntegerDot(unit.byte_pairs.multiply, BYTES, "int8", "int8", adds=False)
    return next(instructions, pairs)


@dataclass(frozen=True)
class BlockMatmul:
    """epilogue(sum over `depth` of source[origin + k] * weights) for `rows` x `column`.

    numbers: the packed weights, flat, of shape `packed` [panels, blocks, words, width, 4]; scales,
    zeros: flat [panels, blocks, width], the bits of float16 where they are uint16. zeros: None
    where all are half of the range; both are None where weights are float16, one in each word.
    codebook: the 16 values of codes, None for other weights.
    """

    form: Form
    rows: tuple[Axis, ...]
    column: Axis
    depth: int
    source: Any
    origin: Expr
    numbers: Any
    packed: tuple[int, ...]
    scales: Any
    zeros: Any
    codebook: Any
    epilogue: Epilogue
    prelude: tuple[Stmt, ...]

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return require_int(self.column.extent)

    @property
    def panels(self) -> int:
        """Panels, the last one of which may be padded."""
        return self.packed[0]

    @property
    def blocks(self) -> int:
        """Blocks of the depth, the last one of which may be padded."""
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
        """Weights of a word."""
        return 1 if self.form.bits == HALF else 32 // self.form.bits

    @property
    def block(self) -> int:
        """Weights of a column in a block."""
        return self.words * self.each

    @property
    def is_signed(self) -> bool:
        """True if 8-bit weights and their zero points are stored less 128."""
        return dtype_of(self.numbers) == "int8"

    @property
    def has_offsets(self) -> bool:
        """True if `zeros` are offsets that are added after the scale, not subtracted before it."""
        return self.zeros is not None and dtype_of(self.zeros) == "uint16"


def match_block_matmul(program: Program, unit: VectorUnit) -> BlockMatmul | Declined:
    """Read the program as a matmul by block-wise quantized weights."""
    form = _FORMS.get(program.stages[0].name)
    anchored = None if form is None else read_anchored(program)
    if form is None or anchored is None:
        return Declined("its weights are not block-wise quantized")
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
    tables = {len(read.source.shape): read.source for read in loads(anchored.combine.term.b)}
    numbers = tables[5]
    is_float16 = form.bits == HALF
    scales, *zeros = [None] if is_float16 else _find_tables(anchored.combine.term.b)
    return BlockMatmul(
        form=form,
        rows=tuple(rows),
        column=column,
        depth=require_int(along.extent),
        source=views[left.source],
        origin=analyzer.simplify(substitute(offset, {along.var: const(0)})),
        numbers=views[numbers],
        packed=tuple(map(require_int, numbers.shape)),
        scales=None if is_float16 else views[scales],
        zeros=views[zeros[0]] if zeros else None,
        codebook=views[tables[1]] if form.codes else None,
        epilogue=anchored.epilogue.over(rows),
        prelude=tuple(anchored.flat.prelude),
    )


def _find_tables(weight: Any) -> list[Any]:
    """[scales] or [scales, zeros] of (number - zero) * scale, or of number * scale + zeros."""
    if isinstance(weight, prim.Add):
        return [*_tables(weight.a), *_tables(weight.b)]
    return [*_tables(weight.b), *_tables(weight.a)]


def _tables(value: Any) -> list[Any]:
    """The tables of scales or zero points that a value reads; a float16 is read in parts."""
    tables: list[Any] = []
    for read in loads(value):
        if len(read.source.shape) == 3 and not any(read.source.same_as(table) for table in tables):
            tables.append(read.source)
    return tables


def default_zero(matmul: BlockMatmul) -> int:
    """The zero point of weights without `zeros`, as they are stored."""
    return 0 if matmul.is_signed else 1 << (matmul.form.bits - 1)
