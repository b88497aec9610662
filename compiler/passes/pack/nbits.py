"""Lays block-wise quantized weights out in panels, as the kernels of their matmuls read them."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.ir.ops.quantized.block_matmul import HALF, Blocks, real_of_half
from compiler.passes.cpu.families.nbits.match import BYTES, Form, instruction_of, stage_of
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.block_matmuls import BlockwiseCall, read_blockwise_call
from compiler.passes.match.rewriting import FUSABLE, CallRewriter, rewrite_functions
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import const

_AT_ONCE = 64
"""Panels that are laid out together, so that a large matrix needs little memory beside itself."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Panels:
    """A table in panels of `width` columns. numbers: uint8, or int8 less 128, [panels, blocks,
    words, width, 4]; scales, zeros: [panels, blocks, width]. Of float16: uint16 [panels, 1, depth,
    width, 1], without scales.

    Scales are the bits of float16, uint16, where these are exact, else float32. Zeros of uint16 are
    the bits of what is added behind the scale: minus the zero point times the scale.

    Byte j of a word of 4-bit numbers holds number j in its lower and number j + 4 in its upper
    half, so that one mask gives four neighbours in the bytes of a vector.
    """

    table: Blocks
    numbers: Array
    scales: Array | None
    zeros: Array | None

    @property
    def arrays(self) -> list[Array]:
        """The arrays that the program takes beside the left side."""
        every = (self.numbers, self.scales, self.zeros, self.table.codebook)
        return [one for one in every if one is not None]


def pack_panels(table: Blocks, width: int, signed: bool = False) -> Panels:
    """The table in panels, the last one filled with zeros; signed: 8-bit numbers and their zero
    points as int8.
    """
    if table.scales is None:
        rows = _fill(table.numbers[:, 0], width).reshape(-1, 1, width, table.depth, 1)
        return Panels(table, np.ascontiguousarray(rows.transpose(0, 1, 3, 2, 4)), None, None)
    columns, blocks, stored = table.numbers.shape
    panels = -(-columns // width)
    numbers = np.empty((panels, blocks, stored // BYTES, width, BYTES), np.uint8)
    for first in range(0, panels, _AT_ONCE):
        part = _fill(table.numbers[first * width : (first + _AT_ONCE) * width], width)
        words = _words(part, table.bits).reshape(-1, width, blocks, stored // BYTES, BYTES)
        numbers[first : first + _AT_ONCE] = words.transpose(0, 2, 3, 1, 4)
    scales = _beside(table.scales, width)
    zeros = None if table.zeros is None else _beside(table.zeros, width)
    if signed:
        numbers = (numbers ^ np.uint8(128)).view(np.int8)
        if zeros is not None and zeros.dtype == np.uint8:
            zeros = (zeros ^ np.uint8(128)).view(np.int8)
        elif zeros is not None:
            zeros = zeros - np.float32(128)
    if zeros is not None and zeros.dtype == np.float32:
        zeros = _added(zeros, scales)
    return Panels(table, numbers, _as_float16(scales), zeros)


def _as_float16(values: Array) -> Array:
    """The bits of the same numbers as float16, where that holds all of them; else as they are."""
    with np.errstate(over="ignore"):
        float16 = values.astype(np.float16)
    same = np.isfinite(float16).all() and (float16 == values).all()
    return float16.view(np.uint16) if same else values


def _added(zeros: Array, scales: Array) -> Array:
    """The bits of -zero * scale as float16, where all zero points come from such numbers, as those
    of formats do that store the least number of a block; else the zero points as they are.
    """
    added = -zeros * scales
    with np.errstate(over="ignore"):
        float16 = added.astype(np.float16)
    # A quotient and its product with the divisor are each rounded once.
    same = np.isfinite(float16).all() and np.allclose(float16, added, rtol=2.0**-22, atol=0)
    return float16.view(np.uint16) if same else zeros


def _fill(rows: Array, width: int) -> Array:
    missing = -len(rows) % width
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])


def _words(rows: Array, bits: int) -> Array:
    """Bytes in the order of a word's."""
    if bits == 8:
        return rows
    pairs = rows.reshape(*rows.shape[:-1], -1, 4)
    numbers = np.stack([pairs & 15, pairs >> 4], -1).reshape(*pairs.shape[:-1], 8)
    return np.asarray(numbers[..., :4] | numbers[..., 4:] << 4)


def _beside(values: Array, width: int) -> Array:
    """[columns, blocks] as [panels, blocks, width]."""
    parts = _fill(values, width).reshape(-1, width, values.shape[1])
    return np.ascontiguousarray(parts.transpose(0, 2, 1))


@dataclass(frozen=True)
class PackNBits(ModulePass):
    """Rewrites matmuls by block-wise quantized weights into programs over panels. Rows of a matrix
    that is also one of a matmul are read from its panels, so that it is there once.
    """

    unit: VectorUnit
    name = "pack_nbits"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        rewriter = _Rewriter(module, self.unit)
        for function in module.functions.values():
            if isinstance(function, relax.Function):
                rewriter.collect(function)
        return rewrite_functions(rewriter)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, unit: VectorUnit) -> None:
        super().__init__(module)
        self.width = 2 * unit.lanes(32)
        self.product = instruction_of(unit)
        self.multiplied: set[bytes] = set()
        self.packed: dict[tuple[bytes, bool], tuple[Panels, list[Any]]] = {}

    def collect(self, function: Any) -> None:
        """Notes the tables of all matmuls."""

        def visit(expr: Any) -> None:
            if isinstance(expr, relax.Call):
                match = read_blockwise_call(self, expr)
                if match is not None and match.quantized is not None:
                    self.multiplied.add(_key(match.table))

        relax.analysis.post_order_visit(function, visit)

    def rewrite(self, call: Any) -> Any:
        match = read_blockwise_call(self, call)
        if match is None:
            return call
        if match.quantized is None:
            return self._rows(match, call)
        panels, constants = self._panels(match.table)
        return self.builder_.call_te(
            lambda x, *tensors: _matmul(x, tensors, panels, match.columns, match.quantized),
            match.data,
            *constants,
            primfunc_name_hint="nbits_panels",
            primfunc_attrs=FUSABLE,
        )

    def _rows(self, match: BlockwiseCall, call: Any) -> Any:
        if _key(match.table) not in self.multiplied:
            return call
        panels, constants = self._panels(match.table)
        return self.builder_.call_te(
            lambda index, *tensors: _rows_of(index, tensors, panels, match.columns),
            match.data,
            *constants,
            primfunc_name_hint="rows_of_panels",
        )

    def _panels(self, table: Blocks) -> tuple[Panels, list[Any]]:
        """The table in panels, as constants too; layers that share a table share its panels."""
        signed = table.bits == 8 and self.product is not None and self.product.left == "int8"
        key = (_key(table), signed)
        if key not in self.packed:
            panels = pack_panels(table, self.width, signed)
            self.packed[key] = (panels, [relax.const(array) for array in panels.arrays])
        return self.packed[key]


def _key(table: Blocks) -> bytes:
    digest = hashlib.sha256(f"{table.bits} {table.block} {table.depth}".encode())
    for tensor in table.tensors:
        digest.update(tensor.data.tobytes())
    return digest.digest()


def _matmul(x: Any, tensors: Any, panels: Panels, columns: int, quantized: bool) -> Any:
    k = te.reduce_axis((const(0), const(panels.table.depth)), name="k")
    return te.compute(
        (*x.shape[:-1], const(columns)),
        lambda *index: te.sum(x(*index[:-1], k) * _real(tensors, panels, index[-1], k), axis=[k]),
        name=stage_of(Form(panels.table.bits, quantized, panels.table.codebook is not None)),
    )


def _rows_of(index: Any, tensors: Any, panels: Panels, columns: int) -> Any:
    def element(*position: Any) -> Any:
        row = index(*position[:-1]).astype("int64")
        wrapped = tirx.Select(row < 0, row + columns, row)
        return _real(tensors, panels, wrapped, position[-1])

    return te.compute((*index.shape, const(panels.table.depth)), element, name="rows")


def _real(tensors: Any, panels: Panels, column: Any, k: Any) -> Any:
    """The number at [column, k] as float32."""
    table, (numbers, *others) = panels.table, tensors
    panel, lane = column // numbers.shape[3], column % numbers.shape[3]
    if table.bits == HALF:
        return real_of_half(numbers(panel, 0, k, lane, 0))
    scales, *zeros = (_as_stored(tensor) for tensor in others)
    each, block, inner = 32 // table.bits, k // table.block, k % table.block
    byte = numbers(panel, block, inner // each, lane, inner % BYTES).astype("int32")
    if table.bits == 4:
        byte = (byte >> (inner % each // BYTES * 4).astype("int32")) & 15
    if table.codebook is not None:
        return others[1](byte) * scales(panel, block, lane)
    number, scale = byte.astype("float32"), scales(panel, block, lane)
    if panels.zeros is not None and panels.zeros.dtype == np.uint16:
        return number * scale + zeros[0](panel, block, lane)
    signed = panels.numbers.dtype == np.int8
    zero: Any = tirx.const(0 if signed else 1 << (table.bits - 1), "float32")
    if zeros:
        zero = zeros[0](panel, block, lane).astype("float32")
    return (number - zero) * scale


def _as_stored(table: Any) -> Callable[..., Any]:
    """Elements of scales or zero points, those of float16 as float32."""
    if table.dtype == "uint16":
        return lambda *index: real_of_half(table(*index))
    return lambda *index: table(*index)
