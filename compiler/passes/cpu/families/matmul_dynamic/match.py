"""Recognition of matmuls of two tensors that are both computed at run time."""

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.families.matmul.match import Contraction, read_contraction
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import as_int
from compiler.tir.flat import stride
from compiler.tir.stages import Program


def match_matmul_dynamic(program: Program, unit: VectorUnit) -> Contraction | Declined:
    """Read the program as a contraction with rows, whose columns can be computed in vectors."""
    contraction = read_contraction(program)
    if isinstance(contraction, Declined):
        return contraction
    column = contraction.column.var
    # Vectors of columns are read from the right side without a shuffle.
    if as_int(stride(contraction.right.indices[0], column)) != 1:
        return Declined("its right side is not contiguous along the columns")
    if not all(is_vectorizable(out.value, column) for out in contraction.epilogue.outputs):
        return Declined("its epilogue cannot be computed in vectors of columns")
    if not contraction.rows:
        return Declined("it has no rows that share its right side")
    if not contraction.reduce:
        return Declined("its sum has a single term")
    if not contraction.from_zero:
        return Declined("its sum does not begin at zero")
    return contraction
