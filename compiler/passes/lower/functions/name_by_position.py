"""Names parameters and dims by their positions: TVM writes their names into a kernel's messages,
and equal loops are equal code, whichever model they are of.
"""

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.building import emit, statements


@dataclass(frozen=True)
class NameByPosition(ProgramPass):
    """Names parameters `p0`, `p1`, ... and dims `d0`, `d1`, ... in every tensor program; what they
    were called is declared within.
    """

    name = "name_by_position"
    phase = Phase.FUNCTIONS
    requires = (Property.FLAT_BUFFERS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Renames the parameters and dims of a program."""
        params = list(func.params)
        plain = {
            param: tirx.Var(f"p{position}", param.ty)
            for position, param in enumerate(params)
            if not _is_buffer(param)
        }

        def note(dim: Any) -> None:
            plain.setdefault(dim, tirx.Var(f"d{len(plain)}", dim.ty))

        def renamed(var: Any) -> Any:
            return plain[var]

        buffers = {position: param for position, param in enumerate(params) if _is_buffer(param)}
        for param in buffers.values():
            tvm_ffi.structural_walk(param.ty, (tirx.Var, note), order="pre")
        with statements() as body:
            for var, other in plain.items():
                emit(tirx.Bind(var, other))
            for position, param in buffers.items():
                params[position] = tirx.Var(
                    f"p{position}", tvm_ffi.structural_map(param.ty, (tirx.Var, renamed))
                )
                emit(tirx.DeclBuffer(param, data=params[position].data))
            emit(func.body)
        params = [plain.get(param, param) for param in params]
        return tirx.PrimFunc(params, body.stmt, func.ret_type, func.attrs, func.span)


def _is_buffer(param: Any) -> bool:
    return hasattr(param.ty, "shape")
