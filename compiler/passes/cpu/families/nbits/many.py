"""Many rows of 8-bit integers by a panel, some blocks of the depth at a time.

The numbers of those blocks are unpacked to bytes once for all rows, and stay in L1 beside the
integers of a tile; the sums of rows wait in scratch memory for the next blocks.
"""

from collections.abc import Iterator

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.nbits.match import BYTES
from compiler.passes.cpu.families.nbits.rows import Rounded
from compiler.passes.cpu.families.nbits.tiles import Numbers, add_block, quadruples
from compiler.passes.cpu.families.nbits.vectors import Held, Vectors, as_words, shares_of
from compiler.tir.building import alloc, emit, let, serial
from compiler.tir.exprs import Expr, const, load


class ManyRows:
    """Rows of a task, at most so many, by a panel, in tiles of some rows.

    sums: the buffer of the results [rows, width], in scratch memory; behind them are the numbers of
    some blocks as bytes [block, four of the depth, width, 4], unless those of the panel are. One
    buffer: TVM's pool takes as long to free the first of two as a tile does for two blocks.
    """

    def __init__(self, vectors: Vectors, left: Rounded, tile: int, rows: int) -> None:
        self.vectors, self.left, self.tile, nbits = vectors, left, tile, vectors.nbits
        self._held = tile * len(vectors.starts)
        self._room = -(-rows // tile) * self._held
        self._fours = nbits.block // BYTES
        self._are_bytes = nbits.form.bits == 8
        # Half of L1: beside the numbers are the integers and the sums of a tile.
        most = max(vectors.unit.l1 // 2 // (nbits.block * nbits.width), 1)
        self._blocks = -(-nbits.blocks // -(-nbits.blocks // most))
        unpacked = 0 if self._are_bytes else self._blocks * self._fours * len(vectors.starts)
        self.sums = alloc([(self._room + unpacked) * vectors.lanes], "float32", "scratch", "global")

    def emit(self, first: Expr, count: Expr) -> Iterator[list[Expr]]:
        """Emit the products of so many rows; gives those of each tile, to emit what is to be done
        before its blocks.
        """
        vectors, tile = self.vectors, self.tile
        with serial(self._room, "i") as i:
            self._write(i, vectors.spread(tirx.const(0.0, "float32")))
        with serial(-(-vectors.nbits.blocks // self._blocks), "part") as part:
            begin = let("begin", part * self._blocks)
            some = let("some", tirx.min(self._blocks, vectors.nbits.blocks - begin))
            self._unpack(begin, some)
            with serial(tirx.ceildiv(count, const(tile)), "tile") as number:
                rows = [first + number * tile + i for i in range(tile)]
                yield rows
                self._multiply(number, rows, (begin, some))

    def _unpack(self, begin: Expr, some: Expr) -> None:
        """Emit writing the numbers of the blocks as bytes."""
        if self._are_bytes:
            return
        with serial(some, "block") as block:
            self.vectors.prefetch_beside(begin + block)
            for k, numbers in enumerate(quadruples(self.vectors, begin + block)):
                for v in range(len(self.vectors.starts)):
                    reals = tirx.reinterpret(f"float32x{self.vectors.lanes}", numbers.held[v])
                    self._write(self._number(block, k, v), reals)

    def _multiply(self, tile: Expr, rows: list[Expr], blocks: tuple[Expr, Expr]) -> None:
        """Emit the products of a tile by some blocks, (first, count), added to its sums."""
        vectors, (begin, some) = self.vectors, blocks
        share = let("share", tirx.truncmod(tile, const(shares_of(vectors.nbits))))
        sums = Held(self._held, vectors.lanes, "float32", "sums")
        for i in range(len(sums)):
            sums[i] = self._read(tile * len(sums) + i)
        with serial(some, "block") as block:
            vectors.prefetch_share(share, begin + block)
            at = (rows, begin + block)
            add_block(vectors, self.left, at, self._quadruples(begin, block), sums)
        for i in range(len(sums)):
            self._write(tile * len(sums) + i, sums[i])

    def _quadruples(self, begin: Expr, block: Expr) -> Iterator[Numbers]:
        """The numbers of a block, counted from the first of those that are bytes."""
        vectors = self.vectors
        if self._are_bytes:
            yield from quadruples(vectors, begin + block)
            return
        for k in range(self._fours):
            held = Held(len(vectors.starts), vectors.lanes, "int32", "numbers")
            for v in range(len(vectors.starts)):
                held[v] = as_words(self._read(self._number(block, k, v)), vectors.lanes)
            yield Numbers(held, ((begin + block) * self._fours + k) * BYTES)

    def _number(self, block: Expr, k: int, v: int) -> Expr:
        """Which vector of the buffer holds the k-th four numbers of some columns."""
        return self._room + (block * self._fours + k) * len(self.vectors.starts) + v

    def _read(self, number: Expr) -> Expr:
        return load(self.sums, [self._place(number)])

    def _write(self, number: Expr, value: Expr) -> None:
        emit(tirx.BufferStore(self.sums, value, [self._place(number)]))

    def _place(self, number: Expr) -> Expr:
        return prim.Ramp(number * self.vectors.lanes, const(1), self.vectors.lanes)
