"""Which experts a mixture has for each token, and the tokens of each expert side by side."""

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


@dataclass(frozen=True)
class Routes:
    """The experts of each token and their shares of its result: int32 and float32 [tokens, k]."""

    experts: Tensor
    shares: Tensor

    @property
    def tokens(self) -> Extent:
        """Rows of the mixture's input."""
        return self.experts.shape[0]

    @property
    def each(self) -> int:
        """Experts of a token."""
        return int(self.experts.shape[1])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Groups:
    """The pairs (token, expert) in blocks of a few rows that have one expert, in its order.

    expert: int32 [blocks], that of each block; token: int32 [blocks, rows], the token of each row,
    0 in rows that no pair needs; row: int32 [tokens, k], the row of each pair, counted through
    all blocks.
    """

    expert: Tensor
    token: Tensor
    row: Tensor


def choose(b: Builder, scores: Value, k: int, weights: Value | None, of_chosen: bool) -> Routes:
    """The experts of the k greatest scores, the later one of two that are equal.

    scores: float32 [tokens, experts]; a share is the softmax of the scores, over all experts or, if
    of_chosen, over those chosen. weights: float32 [tokens, experts] that are the shares in the
    softmax's place; of_chosen then divides them by their sum. Shares that are negative or not a
    number become 0, as do all of a token with a NaN among its scores.
    """
    tokens, count = scores.shape

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        def row(t: Any) -> None:
            _choose_row(inputs[0], outputs[0], t, ex.prim(count), k)
            _share_row(inputs, outputs, t, (ex.prim(count), k), of_chosen)

        loop_programs.spread(tokens, row, ex.mul(count, 8 * k))

    values = [scores] if weights is None else [scores, weights]
    shape = (tokens, k)
    experts, shares = loop_programs.program(
        b, body, [(shape, "int32"), (shape, "float32")], *values, name="choose_experts"
    )
    return Routes(experts, shares)


def _choose_row(scores: Any, experts: Any, t: Any, count: Any, k: int) -> None:
    """Emit the choice for token t: each next expert is the greatest behind the one before."""
    least = tirx.min_value("float32")
    bound, last = (
        loop_programs.cell("float32", tirx.infinity("float32")),
        loop_programs.cell(start=count),
    )
    with loop_programs.serial(k) as j:
        best, winner = loop_programs.cell("float32", least), loop_programs.cell(start=0)
        with loop_programs.serial(count) as e:
            score = tirx.max(scores[t, e], least)
            after = tirx.Or(score < bound[0], tirx.And(tirx.EQ(score, bound[0]), e < last[0]))
            with loop_programs.when(tirx.And(after, score >= best[0])):
                best[0] = score
                winner[0] = e
        experts[t, j] = winner[0].astype("int32")
        bound[0] = best[0]
        last[0] = winner[0]


def _share_row(
    inputs: list[Any], outputs: list[Any], t: Any, sizes: tuple[Any, int], of_chosen: bool
) -> None:
    """Emit the shares of token t."""
    scores, (experts, shares), (count, k) = inputs[0], outputs, sizes
    greatest = loop_programs.cell("float32", tirx.min_value("float32"))
    with loop_programs.serial(count) as e:
        greatest[0] = tirx.max(greatest[0], scores[t, e])
    everything, chosen = loop_programs.cell("float32", 0.0), loop_programs.cell("float32", 0.0)
    with loop_programs.serial(count) as e:
        everything[0] = everything[0] + tirx.exp(scores[t, e] - greatest[0])
    with loop_programs.serial(k) as j:
        e = experts[t, j].astype("int64")
        part = tirx.exp(scores[t, e] - greatest[0]) if len(inputs) == 1 else inputs[1][t, e]
        shares[t, j] = part
        chosen[0] = chosen[0] + part
    zero, one = tirx.const(0, "float32"), tirx.const(1, "float32")
    total = chosen[0] if of_chosen else everything[0] if len(inputs) == 1 else one
    with loop_programs.serial(k) as j:
        share = shares[t, j] / total
        # Comparisons with a NaN do not hold, so that NaN and division by zero give no share.
        good = tirx.And(everything[0] > zero, share > zero)
        shares[t, j] = tirx.Select(good, share, zero)


def group(b: Builder, routes: Routes, count: int, rows: int) -> Groups:
    """Sort the pairs by their experts, of which there are `count`, into blocks of `rows` rows."""
    pairs = ex.mul(routes.tokens, routes.each)
    # No more blocks than pairs, and of no expert more than one block that is not full.
    most = ex.floordiv(ex.add(pairs, count * (rows - 1)), rows)
    (blocks,) = b.extents([pairs if rows == 1 else ex.minimum(pairs, most)], "blocks")

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        expert, token, row, first = outputs
        _start_blocks(inputs[0], expert, first, (routes.tokens, routes.each, count), (blocks, rows))

        def clear(n: Any, m: Any) -> None:
            token[n, m] = tirx.const(0, "int32")

        loop_programs.grid((blocks, rows), clear)

        def assign(t: Any, j: Any) -> None:
            e = inputs[0][t, j].astype("int64")
            slot = loop_programs.cell(start=first[e])
            row[t, j] = slot[0].astype("int32")
            token[tirx.floordiv(slot[0], rows), tirx.floormod(slot[0], rows)] = t.astype("int32")
            first[e] = slot[0] + 1

        loop_programs.grid((routes.tokens, routes.each), assign)

    forms = [
        ((blocks,), "int32"),
        ((blocks, rows), "int32"),
        ((routes.tokens, routes.each), "int32"),
        ((count,), "int64"),
    ]
    expert, token, row, _ = loop_programs.program(
        b, body, forms, routes.experts, name="group_by_expert"
    )
    return Groups(expert, token, row)


def _start_blocks(
    experts: Any,
    expert: Any,
    first: Any,
    sizes: tuple[Extent, int, int],
    shape: tuple[Extent, int],
) -> None:
    """Emit the first row of each expert into `first`, and the expert of each block; of blocks that
    nothing fills, the last one.
    """
    (tokens, each, count), (blocks, rows) = sizes, shape
    with loop_programs.serial(count) as e:
        first[e] = ex.prim(0)

    def count_pair(t: Any, j: Any) -> None:
        e = experts[t, j].astype("int64")
        first[e] = first[e] + 1

    loop_programs.grid((tokens, each), count_pair)
    block = loop_programs.cell()
    with loop_programs.serial(count) as e:
        needed = loop_programs.cell(start=tirx.floordiv(first[e] + (rows - 1), rows))
        first[e] = block[0] * rows
        with loop_programs.serial(needed[0]) as i:
            expert[block[0] + i] = e.astype("int32")
        block[0] = block[0] + needed[0]
    with loop_programs.serial(blocks, block[0]) as i:
        expert[i] = tirx.const(count - 1, "int32")
