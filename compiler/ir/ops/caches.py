"""Caches of keys and values that each batch entry fills to its own length."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.ops import loops
from compiler.ir.values import Value


def appended(b: Builder, past: Value | None, now: Value, lengths: Value, columns: Extent) -> Value:
    """[batch, groups, columns, size]: the past with the new rows [batch, groups, rows, size] put
    before each entry's end, zeros where nothing is; lengths: int64 [batch], the ends.

    Each head of an entry is a run of copies, so that a step costs what memory takes to move it.
    """
    batch, groups, rows, size = now.shape
    room = 0 if past is None else past.shape[2]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        (new, ends, *old), (cache,) = inputs, outputs

        def one(task: Any) -> None:
            n, g = tirx.truncdiv(task, ex.prim(groups)), tirx.truncmod(task, ex.prim(groups))
            end = loops.cell("int64", ends[n])
            start = loops.cell("int64", end[0] - ex.prim(rows))
            kept = loops.cell("int64", tirx.min(start[0], ex.prim(room)))
            nothing = tirx.const(0, now.dtype)

            def fill(first: Any, last: Any, value: Any) -> None:
                with loops.serial(last, first) as j, loops.serial(size) as d:
                    cache[n, g, j, d] = value(j, d)

            if old:
                fill(0, kept[0], lambda j, d: old[0][n, g, j, d])
            fill(kept[0] if old else 0, start[0], lambda j, d: nothing)
            fill(start[0], end[0], lambda j, d: new[n, g, j - start[0], d])
            fill(end[0], columns, lambda j, d: nothing)

        loops.spread(ex.mul(batch, groups), one, ex.mul(columns, size))

    given = [now, lengths, *([] if past is None else [past])]
    form = ((batch, groups, columns, size), now.dtype)
    (cache,) = loops.program(b, body, [form], *given, name="appended")
    return cache
