"""Many rows of 8-bit integers by a panel, some blocks of the depth at a time.

The weights of those blocks are unpacked to bytes once for all rows, and stay in L1 beside the
integers of a tile; accumulators are in scratch memory between blocks.
"""

from collections.abc import Iterator

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.nbits.match import BYTES
from compiler.passes.cpu.families.nbits.rows import QuantizedRows
from compiler.passes.cpu.families.nbits.tiles import Numbers, add_block, unpack_fours
from compiler.passes.cpu.families.nbits.vectors import Registers, Vectors, as_words, shares_of
from compiler.tir.building import alloc, emit, let, serial
from compiler.tir.exprs import Expr, const, load


class ManyRows:
    """Up to `rows` rows of a task by a panel, in tiles of `tile` rows.

    acc: the accumulators [rows, width] in scratch memory, followed by the weights of some blocks as
    bytes [block, four of the depth, width, 4], unless the panel has bytes. One buffer: TVM's pool
    takes as long to free the first of two as a tile does for two blocks.
    """

    def __init__(self, vectors: Vectors, left: QuantizedRows, tile: int, rows: int) -> None:
        self.vectors, self.left, self.tile, matmul = vectors, left, tile, vectors.matmul
        self._tile_vectors = tile * len(vectors.starts)
        self._acc_vectors = -(-rows // tile) * self._tile_vectors
        self._fours = matmul.block // BYTES
        self._are_bytes = matmul.form.bits == 8
        # Half of L1: the rest is for the integers and the accumulators of a tile.
        most = max(vectors.unit.l1 // 2 // (matmul.block * matmul.width), 1)
        self._blocks = -(-matmul.blocks // -(-matmul.blocks // most))
        unpacked = 0 if self._are_bytes else self._blocks * self._fours * len(vectors.starts)
        self.acc = alloc(
            [(self._acc_vectors + unpacked) * vectors.lanes], "float32", "scratch", "global"
        )

    def emit(self, first: Expr, count: Expr) -> Iterator[list[Expr]]:
        """Emit the accumulators of `count` rows; yield the rows of each tile before its blocks."""
        vectors, tile = self.vectors, self.tile
        with serial(self._acc_vectors, "i") as i:
            self._write(i, vectors.broadcast(tirx.const(0.0, "float32")))
        with serial(-(-vectors.matmul.blocks // self._blocks), "part") as part:
            begin = let("begin", part * self._blocks)
            size = let("some", tirx.min(self._blocks, vectors.matmul.blocks - begin))
            self._unpack(begin, size)
            with serial(tirx.ceildiv(count, const(tile)), "tile") as number:
                rows = [first + number * tile + i for i in range(tile)]
                yield rows
                self._multiply(number, rows, (begin, size))

    def _unpack(self, begin: Expr, count: Expr) -> None:
        """Emit the weights of some blocks as bytes."""
        if self._are_bytes:
            return
        with serial(count, "block") as block:
            self.vectors.prefetch_tables(begin + block)
            for k, numbers in enumerate(unpack_fours(self.vectors, begin + block)):
                for v in range(len(self.vectors.starts)):
                    vector = tirx.reinterpret(f"float32x{self.vectors.lanes}", numbers.words[v])
                    self._write(self._vector_of(block, k, v), vector)

    def _multiply(self, tile: Expr, rows: list[Expr], blocks: tuple[Expr, Expr]) -> None:
        """Emit the multiply-accumulates of a tile by some blocks, (first, count)."""
        vectors, (begin, size) = self.vectors, blocks
        share = let("share", tirx.truncmod(tile, const(shares_of(vectors.matmul))))
        acc = Registers(self._tile_vectors, vectors.lanes, "float32", "sums")
        for i in range(len(acc)):
            acc[i] = self._read(tile * len(acc) + i)
        with serial(size, "block") as block:
            vectors.prefetch_share(share, begin + block)
            tile_block = (rows, begin + block)
            add_block(vectors, self.left, tile_block, self._load_fours(begin, block), acc)
        for i in range(len(acc)):
            self._write(tile * len(acc) + i, acc[i])

    def _load_fours(self, begin: Expr, block: Expr) -> Iterator[Numbers]:
        """The weights of a block; block: counted from `begin`, the first one in scratch memory."""
        vectors = self.vectors
        if self._are_bytes:
            yield from unpack_fours(vectors, begin + block)
            return
        for k in range(self._fours):
            words = Registers(len(vectors.starts), vectors.lanes, "int32", "numbers")
            for v in range(len(vectors.starts)):
                words[v] = as_words(self._read(self._vector_of(block, k, v)), vectors.lanes)
            yield Numbers(words, ((begin + block) * self._fours + k) * BYTES)

    def _vector_of(self, block: Expr, k: int, v: int) -> Expr:
        """The number of the vector in the buffer with the k-th four weights of some columns."""
        return self._acc_vectors + (block * self._fours + k) * len(self.vectors.starts) + v

    def _read(self, number: Expr) -> Expr:
        return load(self.acc, [self._indices(number)])

    def _write(self, number: Expr, value: Expr) -> None:
        emit(tirx.BufferStore(self.acc, value, [self._indices(number)]))

    def _indices(self, number: Expr) -> Expr:
        return prim.Ramp(number * self.vectors.lanes, const(1), self.vectors.lanes)
