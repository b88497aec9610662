"""Keeps block-wise quantized weights as words of 32 bits, the only integers that WebGPU's shaders
read.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.ir.graph.indices import wrap
from compiler.ir.ops.quantized.block_matmul import Blocks
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.gpu.one_row import UNPACKING
from compiler.passes.gpu.rows import flat_shape
from compiler.passes.match.block_matmuls import read_blockwise_call
from compiler.passes.match.rewriting import FUSABLE, CallRewriter, rewrite_functions

_WORD = 32


@dataclass(frozen=True)
class PackWords(ModulePass):
    """Rewrites matmuls by matrices of 4 and 8 bits into tensor programs `[rows, depth]` by words
    `[columns, blocks, words]`, and reads of their rows into reads of words.

    Each program unpacks numbers as it reads them, in a stage of its own, so that schedules keep
    what it makes in registers or shared memory. Tables of float16, and those whose blocks are no
    whole words or hold codes, stay as they are.
    """

    name = "pack_words"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._constants: dict[tuple[Any, ...], Any] = {}

    def rewrite(self, call: Any) -> Any:
        match = read_blockwise_call(self, call)
        if match is None or not _has_words(match.table):
            return call
        real = _real_of(match.table)
        tensors = [self._constant(array) for array in _stored(match.table)]
        if match.quantized is None:
            return self.builder_.call_te(
                _rows(match.table, real), match.data, *tensors, primfunc_name_hint="take"
            )
        flat = self.builder_.emit(relax.op.reshape(match.data, flat_shape(match.data)))
        matmul = self.builder_.call_te(
            _matmul(match.table, real),
            flat,
            *tensors,
            primfunc_name_hint="words_product",
            primfunc_attrs=FUSABLE,
        )
        return relax.op.reshape(self.builder_.emit(matmul), call.ty.shape)

    def _constant(self, array: np.ndarray[Any, Any]) -> Any:
        """One constant for all that read the same numbers, such as a tied table."""
        key = (array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).digest())
        if key not in self._constants:
            self._constants[key] = relax.const(array)
        return self._constants[key]


def _has_words(table: Blocks) -> bool:
    return (
        table.scales is not None
        and table.codebook is None
        and table.block * table.bits % _WORD == 0
    )


def _stored(table: Blocks) -> list[np.ndarray[Any, Any]]:
    """Words uint32 [columns, blocks, words], scales and, where they differ, zeros, both float32."""
    words = np.ascontiguousarray(table.numbers).view("<u4")
    zeros = [] if table.zeros is None else [table.zeros.astype(np.float32)]
    assert table.scales is not None
    return [words, table.scales, *zeros]


def _real_of(table: Blocks) -> Callable[..., Any]:
    """The function that computes the float32 at [column, k], of the tensors and these."""
    each, bits = _WORD // table.bits, table.bits
    mask, half = tirx.const((1 << bits) - 1, "uint32"), tirx.const(1 << (bits - 1), "float32")

    def real(tensors: tuple[te.Tensor, ...], column: Any, k: Any) -> Any:
        words, scales, *zeros = tensors
        block, within = tirx.floordiv(k, table.block), tirx.floormod(k, table.block)
        shift = (tirx.floormod(k, each) * bits).astype("uint32")
        number = (words(column, block, tirx.floordiv(within, each)) >> shift) & mask
        zero = zeros[0](column, block) if zeros else half
        return (number.astype("float32") - zero) * scales(column, block)

    return real


def _matmul(table: Blocks, real: Callable[..., Any]) -> Callable[..., te.Tensor]:
    """A program of [rows, depth] and the tensors: the product with the matrix's transpose."""
    columns, depth = len(table.numbers), table.depth

    def compute(left: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        weight = te.compute((columns, depth), lambda j, k: real(tensors, j, k), name=UNPACKING)
        k = te.reduce_axis((0, depth), name="k")
        return te.compute(
            (left.shape[0], columns),
            lambda i, j: te.sum(left[i, k] * weight[j, k], axis=k),
            name="product",
        )

    return compute


def _rows(table: Blocks, real: Callable[..., Any]) -> Callable[..., te.Tensor]:
    """A program of indices and the tensors: the matrix's rows, at negative indices from its end."""
    columns = len(table.numbers)

    def compute(index: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        return te.compute(
            (*index.shape, table.depth),
            lambda *position: real(tensors, wrap(index(*position[:-1]), columns), position[-1]),
            name="take",
        )

    return compute
