"""Caches of keys and values: made anew with the new rows, or written where they lie."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, s_tir, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from compiler.ir.graph import loop_programs
from compiler.ir.graph.buffers import AXIS, Buffer
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.programs import OPAQUE
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.shape import quantize_rows
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.tir import byte_rows

WIDENED = "widened"
"""The name of the programs that read quantized rows as the model's dtype."""


def append(b: Builder, past: Value | None, now: Value, lengths: Value, columns: Extent) -> Value:
    """[batch, groups, columns, size]: the past with the new rows [batch, groups, rows, size] put
    before each entry's end, zeros where nothing is; lengths: int64 [batch], the ends.

    Each head of an entry is a run of copies, so that a step costs what memory takes to move it.
    """
    batch, groups, rows, size = now.shape
    room = 0 if past is None else past.shape[2]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        (new, ends, *old), (cache,) = inputs, outputs

        def copy_head(task: Any) -> None:
            n, g = tirx.truncdiv(task, ex.prim(groups)), tirx.truncmod(task, ex.prim(groups))
            end = loop_programs.cell("int64", ends[n])
            start = loop_programs.cell("int64", end[0] - ex.prim(rows))
            copied = loop_programs.cell("int64", tirx.min(start[0], ex.prim(room)))
            nothing = tirx.const(0, now.dtype)

            def fill(first: Any, last: Any, value: Any) -> None:
                with loop_programs.serial(last, first) as j, loop_programs.serial(size) as d:
                    cache[n, g, j, d] = value(j, d)

            if old:
                fill(0, copied[0], lambda j, d: old[0][n, g, j, d])
            fill(copied[0] if old else 0, start[0], lambda j, d: nothing)
            fill(start[0], end[0], lambda j, d: new[n, g, j - start[0], d])
            fill(end[0], columns, lambda j, d: nothing)

        loop_programs.spread(ex.mul(batch, groups), copy_head, ex.mul(columns, size))

    tensors = [now, lengths, *([] if past is None else [past])]
    form = ((batch, groups, columns, size), now.dtype)
    (cache,) = loop_programs.program(b, body, [form], *tensors, name="appended")
    return cache


def write_rows(b: Builder, buffer: Buffer, now: Value, lengths: Value, total: Extent) -> Value:
    """[batch, groups, total, size]: a view of the caller's buffer, in which the new rows
    [batch, groups, rows, size] are put before each entry's end; lengths: int64 [batch], the ends.

    Rows of an entry between its end and the total keep what they held.
    """
    rows = ex.prim(now.shape[2])
    return _put(b, buffer, now, total, lengths, lambda ends, n: ends[n] - rows)


def grown(b: Builder, buffer: Buffer, past: Extent, now: Value) -> Value:
    """[batch, groups, past + rows, size]: a view of the caller's buffer, in which the new rows are
    put behind those of the past.
    """
    rows = buffer.storage_shape(now.shape)
    for axis in (0, 1, 3):
        message = f"new rows differ from the cache {buffer.name!r} on axis {axis}"
        b.same(buffer.storage.shape[axis], rows[axis], message)
    total = b.facts.simplify(ex.add(past, now.shape[2]))
    return _put(b, buffer, now, total, Known.of([past]), lambda first, n: first[0])


def _put(
    b: Builder,
    buffer: Buffer,
    now: Value,
    total: Extent,
    ends: Value,
    first: Callable[[Any, Any], Any],
) -> Value:
    """The buffer's first `total` rows once the new ones are in it, those of entry n from
    `first(ends, n)` on, as the model's dtype; new rows are cast or quantized to the buffer's.
    """
    batch, groups, rows, size = now.shape
    room = buffer.storage.shape[AXIS]
    b.require_once(ex.less_equal(total, room), "the caches have no room for the new tokens")
    inputs = [b.tensor(now), b.tensor(ends), buffer.storage]
    dtype = buffer.storage.dtype
    plain = dtype == now.dtype

    def body(new: Any, starts: Any, cache: Any) -> None:
        def put_head(task: Any) -> None:
            n, g = tirx.truncdiv(task, ex.prim(groups)), tirx.truncmod(task, ex.prim(groups))
            start = loop_programs.cell("int64", first(starts, n))
            with loop_programs.serial(rows) as j:

                def read(d: Any, j: Any = j) -> Any:
                    return new[n, g, j, d]

                def put(d: Any, value: Any, j: Any = j) -> None:
                    cache[n, g, start[0] + j, d] = value

                if buffer.bytes:
                    quantize_rows.write(read, put, size)
                else:
                    with loop_programs.serial(size) as d:
                        put(d, read(d) if plain else read(d).astype(dtype))

        loop_programs.spread(ex.mul(batch, groups), put_head, ex.mul(rows, size))

    program = b.bb.add_func(_updating_program(inputs, body), "written")
    extents = [ex.prim(extent) for extent in buffer.storage.shape]
    call = relax.op.call_tir_inplace(
        program,
        relax.Tuple([tensor.expr for tensor in inputs]),
        len(inputs) - 1,
        relax.TensorType(extents, buffer.storage.dtype),
    )
    after = b.emit(call, buffer.storage.shape)
    view = relax.op.strided_slice(
        after.expr, [AXIS], [ex.prim(0)], [ex.prim(total)], assume_inbound=True
    )
    shape = [batch, groups, total, size]
    present = b.emit(view, buffer.storage_shape(shape))
    buffer.present = present if plain else _widened(b, buffer, present, shape)
    return buffer.present


def _widened(b: Builder, buffer: Buffer, rows: Tensor, shape: Sequence[Extent]) -> Tensor:
    """The rows as the model's dtype: a program of its own, which fused attention reads through."""

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*index: Any) -> Any:
            if not buffer.bytes:
                return data(*index).astype(buffer.dtype)
            *outer, last = index
            return byte_rows.real(lambda byte: data(*outer, byte), last, shape[-1])

        return te.compute([ex.prim(extent) for extent in shape], element, name=WIDENED)

    # Joined to the slice that it reads, it would name a buffer that TVM declares otherwise.
    return b.tensor(b.te(compute, rows, name=WIDENED, attrs={"op_pattern": OPAQUE}))


def _updating_program(inputs: list[Tensor], body: Callable[..., None]) -> tirx.PrimFunc:
    """A program without outputs, that writes into its inputs."""
    with IRBuilder() as ib:
        with T.prim_func(is_private=True, s_tir=True):
            T.func_name("written")
            buffers = [
                T.arg(
                    f"p{index}",
                    tirx.decl_buffer(
                        [ex.prim(extent) for extent in tensor.shape],
                        tensor.dtype,
                        f"p{index}",
                        layout=None,
                    ),
                )
                for index, tensor in enumerate(inputs)
            ]
            with T.sblock("written"):
                T.reads()
                T.writes()
                body(*(T.buffer_proxy(buffer) for buffer in buffers))
        function = ib.get()
    function = s_tir.renew_defs(function).without_attr("global_symbol")
    return function.with_attr("op_pattern", OPAQUE)
