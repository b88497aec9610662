"""Block-wise quantized matrices as GPTQ's and AWQ's tools pack them, as blocks of MatMulNBits with
the numbers, scales and zeros that they have.

Both keep the transpose [depth, rows], eight numbers of four bits in an int32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from compiler.errors import LoadError
from compiler.ir.decoders.quantized import Array, Quantized, pack
from compiler.ir.folder.config import Config, unsupported_error, unusable
from compiler.ir.folder.floats import as_float32, view_as
from relaxd.contract.weight_files.safetensors import Stored

Take: TypeAlias = Callable[[str, tuple[int, ...]], Stored]
"""A tensor of a name and shape; raises LoadError where there is none."""
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The columns that the numbers of an int32 belong to, the lowest bits first."""
_BLOCK = 128
"""The most numbers that share a scale where it could be more: several blocks then have one."""
_LEAST_BLOCK = 16
_REPACK = "quantize the model again with desc_act=False, groups of 32, 64 or 128, and 4 or 8 bits"


@dataclass(frozen=True)
class Packing:
    """bits: of a number; group: numbers along the depth that share a scale, None for all; along:
    the axis of [depth, rows] along which numbers share an int32, in what order; added: to zeros.
    """

    bits: int
    group: int | None
    along: int
    order: tuple[int, ...]
    added: int
    ordered: bool

    def read(self, module: str, shape: tuple[int, int], take: Take) -> Quantized:
        """The matrix [rows, depth] of a module; raises LoadError."""
        rows, depth = shape
        group, each = self.group or depth, 32 // self.bits
        if depth % group or rows % each or depth % each:
            raise unusable(f"{module} must be a matrix in whole groups of {group} numbers")
        block = math.gcd(group, _BLOCK)
        if block < _LEAST_BLOCK:
            raise unsupported_error(f"groups of {group} numbers", _REPACK)
        groups = depth // group
        stored = (depth // each, rows) if self.along == 0 else (depth, rows // each)
        numbers = self._unpacked(take(f"{module}.qweight", stored), self.along, self.order)
        zeros = self._unpacked(take(f"{module}.qzeros", (groups, rows // each)), 1, self.order)
        zeros = zeros + np.uint8(self.added) & np.uint8((1 << self.bits) - 1)
        scales = as_float32(f"{module}.scales", take(f"{module}.scales", (groups, rows)))
        if self.ordered:
            self._require_order(module, take(f"{module}.g_idx", (depth,)), group)
        parts = numbers.T.reshape(rows, depth // block, block)
        repeat = group // block
        middle = bool((zeros == 1 << (self.bits - 1)).all())
        return Quantized(
            self.bits,
            shape,
            pack(self.bits, parts),
            np.repeat(scales.T, repeat, 1),
            None if middle else np.repeat(zeros.T, repeat, 1),
        )

    def _unpacked(self, stored: Stored, along: int, order: tuple[int, ...]) -> Array:
        """uint8, from int32 [a, b]."""
        words = _words(stored)
        shifts = np.arange(0, 32, self.bits, dtype=np.uint32)
        numbers = (words[..., None] >> shifts & np.uint32((1 << self.bits) - 1)).astype(np.uint8)
        numbers = numbers[..., np.argsort(order)]
        if along == 0:
            numbers = numbers.transpose(0, 2, 1)
            return numbers.reshape(-1, words.shape[1])
        return numbers.reshape(words.shape[0], -1)

    def _require_order(self, module: str, stored: Stored, group: int) -> None:
        if (_words(stored) != np.arange(stored.shape[0]) // group).any():
            raise unsupported_error(f"groups out of order, as {module} has them,", _REPACK)


def _words(stored: Stored) -> Array:
    if stored.kind != "I32":
        raise unusable(f"packed numbers and groups are int32, not {stored.kind}")
    return view_as(stored, "<u4")


def packing_of(config: Config) -> Packing | None:
    """None where weights are floats; raises LoadError for other forms."""
    form = config.table("quantization_config")
    if not form.settings:
        return None
    method = form.get("quant_method")
    if method not in ("gptq", "awq"):
        raise _refused(f"weights packed by {str(method)[:40]!r}")
    bits, size = form.count("bits"), form.get("group_size", -1)
    if type(size) is not int or size < -1 or size == 0:
        raise unusable("config.json states no usable group_size")
    group = None if size == -1 else size
    if method == "gptq" and bits in (4, 8):
        later = form.get("checkpoint_format") == "gptq_v2"
        straight = tuple(range(32 // bits))
        return Packing(bits, group, 0, straight, 0 if later else 1, True)
    if method == "awq" and bits == 4 and str(form.get("version", "gemm")).lower() == "gemm":
        return Packing(bits, group, 1, _AWQ_ORDER, 0, False)
    raise _refused(f"weights of {bits} bits packed by {method}")


def _refused(what: str) -> LoadError:
    return unsupported_error(
        what,
        "supported are gptq of 4 and 8 bits and awq of 4 in the version gemm; or save the model "
        "as bfloat16, and quantize its weights with the option weights",
    )
