"""Writes a row of floats as bytes with a scale behind them (`relaxd.contract.bundle.byte_rows`)."""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.ir.graph import loop_programs
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.tir.byte_rows import bytes_of
from relaxd.contract.bundle.byte_rows import LEAST, MOST

_BITS = "uint32"
_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000


def write(read: Callable[[Any], Any], put: Callable[[Any, Any], None], size: Extent) -> None:
    """Emit the row of the float32 that `read` gives for each position; put: stores a byte."""
    # Magnitudes are in the order of their bits, with NaN beyond infinity: a maximum of integers is
    # the same in any order, so that LLVM finds it in vectors.
    most = loop_programs.cell(_BITS, tirx.const(0, _BITS))
    with loop_programs.serial(size) as d:
        magnitude = tirx.reinterpret(_BITS, read(d)) & tirx.const(_MAGNITUDE, _BITS)
        most[0] = tirx.max(most[0], magnitude)
    greatest = tirx.reinterpret("float32", most[0])
    known = most[0] < tirx.const(_INFINITY, _BITS)
    scalable = tirx.all(known, greatest >= _real(LEAST))
    factor = loop_programs.cell("float32", tirx.Select(scalable, _real(MOST) / greatest, _real(0)))
    scale = tirx.Select(scalable, greatest / _real(MOST), _real(0))
    scale = loop_programs.cell("float32", tirx.Select(known, scale, _real(float("nan"))))
    with loop_programs.serial(size) as d:
        # A row that has no scale is read as 0: an infinity times 0 has no byte.
        number = tirx.Select(factor[0] > _real(0), read(d), _real(0)) * factor[0]
        put(d, tirx.nearbyint(number).astype("int8"))
    for i, byte in enumerate(bytes_of(scale[0])):
        put(ex.prim(ex.add(size, i)), byte)


def _real(value: float) -> Any:
    return tirx.const(value, "float32")
