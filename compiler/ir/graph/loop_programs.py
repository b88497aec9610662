"""Tensor programs written as loops, for what no TE expression says: scatters, sorts, scans."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.programs import OPAQUE, call_program
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.tir import script

Body = Callable[[list[Any], list[Any]], None]
Form = tuple[Sequence[Extent], str]


def program(
    b: Builder,
    body: Body,
    outputs: Sequence[Form],
    *values: Value,
    name: str,
    attrs: Mapping[str, Any] | None = None,
) -> tuple[Tensor, ...]:
    """One program of loops; `outputs` are shapes and dtypes, `body` takes the input and output
    buffers and emits statements.

    Buffers are indexed by all their axes with int64 expressions; loops come from `serial`, `spread`
    and `grid`. attrs: further attributes of the program.
    """

    def statement(inputs: Sequence[Any], results: Sequence[Any]) -> Any:
        with IRBuilder() as ib:
            with T.seq_scope():
                body(
                    [T.buffer_proxy(buffer) for buffer in inputs],
                    [T.buffer_proxy(buffer) for buffer in results],
                )
            return ib.get().body

    def compute(*tensors: te.Tensor) -> Any:
        shapes = [tuple(ex.prim(extent) for extent in shape) for shape, _ in outputs]
        tensors_out = te.extern(
            shapes, list(tensors), statement, dtype=[dtype for _, dtype in outputs], name=name
        )
        return [tensors_out] if len(outputs) == 1 else list(tensors_out)

    call, tensors_out = call_program(
        b.bb,
        compute,
        [b.tensor(value) for value in values],
        name,
        b.facts.symbols,
        {"op_pattern": OPAQUE, **(attrs or {})},
    )
    return b.emit_tuple(call) if len(tensors_out) > 1 else (b.emit(call),)


def serial(extent: Extent, start: Extent = 0) -> Any:
    """A loop over [start, extent)."""
    return T.serial(ex.prim(start), ex.prim(extent))


def spread(extent: Extent, run: Callable[[Any], None], work: Extent = 1) -> None:
    """A loop over [0, extent) whose iterations are independent, shared among threads where extent *
    work operations are worth it.
    """
    for i in script.spread(ex.prim(extent), ex.prim(ex.mul(extent, work))):
        run(i)


def copy(source: Any, target: Any, extent: Extent) -> None:
    """The elements of one vector into another."""

    def copy_element(i: Any) -> None:
        target[i] = source[i]

    spread(extent, copy_element)


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Statements run where the condition holds."""
    with T.If(condition), T.Then():
        yield


def cell(dtype: str = "int64", start: Any = 0) -> Any:
    """A local variable, read and written as `cell[0]`."""
    # Without this annotation TVM takes the variable from the heap, each time it is declared.
    variable = T.buffer_proxy(
        T.alloc_buffer([1], dtype, scope="local", annotations={"disable_lower_builtin": True})
    )
    variable[0] = tirx.const(start, dtype) if isinstance(start, (int, float, bool)) else start
    return variable


def grid(extents: Sequence[Extent], run: Callable[..., None]) -> None:
    """Nested serial loops over the extents; `run` takes the indices."""

    def nest(index: tuple[Any, ...]) -> None:
        if len(index) == len(extents):
            run(*index)
            return
        with serial(extents[len(index)]) as i:
            nest((*index, i))

    nest(())
