"""Corrects TVM's marks of elementwise programs: it compares indices, and never extents.

Padding at the end and a slice from the start read each element at the indices where they write it,
and so TVM marks them as elementwise and fuses them behind convolutions and matmuls. A kernel would
then compute them over the extents of the convolution's result instead of their own.

Upstream: no report was found. The pass can go when AnnotateTIROpPattern compares extents.
"""

from dataclasses import dataclass

import tvm
from tvm import sym, tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.passes.match.op_patterns import BROADCAST, INJECTIVE, MARK
from compiler.tir.exprs import loads
from compiler.tir.stages import Stage, read_program


@dataclass(frozen=True)
class CorrectPatterns(ProgramPass):
    """Marks as injective the programs whose result has other extents than the tensors they read."""

    name = "correct_patterns"
    phase = Phase.TENSOR_PROGRAMS
    requires = (Property.OP_PATTERNS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Marks a program behind AnnotateTIROpPattern."""
        if not func.attrs or int(func.attrs.get(MARK, INJECTIVE)) > BROADCAST:
            return func
        program = read_program(func)
        # A program that cannot be read keeps TVM's mark.
        if program is None or all(map(_reads_its_extents, program.stages)):
            return func
        return func.with_attr(MARK, INJECTIVE)


def _reads_its_extents(stage: Stage) -> bool:
    """True if every axis that indexes a buffer by itself has the buffer's extent."""
    extents, analyzer = {axis.var: axis.extent for axis in stage.axes}, sym.Analyzer()
    return all(
        not isinstance(index, tvm.ir.Var)
        or index not in extents
        or analyzer.can_prove_equal(extents[index], extent)
        for one in loads(stage.value)
        for index, extent in zip(one.indices, one.source.shape, strict=True)
    )
