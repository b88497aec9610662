"""The graph builder: turns values into Relax bindings, keeping every shape symbolic and every
decision checked.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, sym, te, tirx
from tvm.ir import Call
from tvm.ir import Expr as PrimExpr
from tvm_ffi import StructuralKey

from compiler.errors import ImportFailed
from compiler.ir.graph.buffers import Buffer
from compiler.ir.graph.checks import Checks
from compiler.ir.graph.draws import SEED
from compiler.ir.graph.origins import Origins
from compiler.ir.graph.programs import call_program
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent, Scalar
from compiler.ir.shapes.facts import Facts
from compiler.ir.shapes.run_time_integers import Reading, is_extent
from relaxd.contract.dims.tensors import storage_of

MAX_SYMBOLS = 64
"""A run-time integer tensor of more elements than this is data, not a shape."""


@dataclass
class Block:
    """A closed list of bindings; `block` goes into a SeqExpr."""

    block: Any = None


def _seed() -> Tensor:
    name = SEED.name.replace(".", "_")
    return Tensor(relax.Var(name, relax.TensorType([], SEED.dtype)), (), SEED.dtype)


@dataclass
class Builder:
    """Emits Relax; one instance builds one function, `facts` holds what is known of its dims.

    origins: names its variables after the model's nodes.
    quantized: it works on small integers that stand for reals, so that quantization decides its
    numbers; quantizes_blocks: matmuls by weights in blocks quantize what they multiply.
    buffers: caches that the caller owns, by the variable of their content before the call.
    repeated: by the result of a broadcast, the tensor that it repeats.
    dequantized: by a value, the integers and the grid that it was computed from
    (`compiler.ir.ops.quantized.dequantized`).
    stacks: a loop stacks what its iterations give, which may be none.
    seed: the function's last parameter, which `output.finish` takes away unless `random` is set.
    """

    facts: Facts = field(default_factory=Facts)
    bb: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)
    quantized: bool = False
    quantizes_blocks: bool = False
    stacks: bool = False
    seed: Tensor = field(default_factory=_seed)
    random: bool = False
    origins: Origins = field(default_factory=Origins)
    checks: Checks = field(init=False)
    buffers: dict[Any, Buffer] = field(default_factory=dict)
    repeated: dict[Tensor, Tensor] = field(default_factory=dict)
    dequantized: dict[Value, Any] = field(default_factory=dict)
    _constants: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)
    _symbols: dict[tuple[Any, Reading], tuple[Any, Known]] = field(default_factory=dict)
    _named: dict[StructuralKey, tirx.Var] = field(default_factory=dict)
    _untyped: dict[Any, relax.Expr] = field(default_factory=dict)
    """By a variable of stated extents, what it was before they were stated."""
    _required: set[Any] = field(default_factory=set)
    """Conditions of `require_once` that every run checks."""
    _depth: int = 0

    def __post_init__(self) -> None:
        self.checks = Checks(self.origins)

    # -- emitting
    # ----------------------------------------------------------------------------------------------

    def emit(self, expr: relax.Expr, shape: Sequence[Extent] | None = None) -> Tensor:
        """Bind a tensor expression; `shape` states its extents where Relax's own deduction may lose
        them.
        """
        return self.adopt(self.bind(expr), shape)

    def bind(self, expr: relax.Expr) -> relax.Var:
        """A variable of any type, named after the node that is being imported. Extents of a program
        in which run-time integers stand are checked before it runs.
        """
        for extent in _extents_of(expr) if self.facts.integers else ():
            if self.facts.has_integers(extent):
                self.require_extent(extent, "extent")
        return self.bb.emit(expr, self.origins.hint())

    def emit_tuple(self, expr: relax.Expr) -> tuple[Tensor, ...]:
        """Bind an expression that yields a tuple of tensors."""
        bound = self.bind(expr)
        return tuple(
            self.emit(relax.TupleGetItem(bound, index)) for index in range(len(bound.ty.fields))
        )

    def adopt(self, variable: relax.Expr, shape: Sequence[Extent] | None = None) -> Tensor:
        """A bound tensor variable as a value; extents that Relax does not know are taken from
        `shape`, else made fresh and matched.
        """
        ty = variable.ty
        if shape is None and ty.shape is not None and isinstance(ty.shape, relax.ShapeExpr):
            return Tensor(
                variable,
                tuple(self.facts.simplify(extent) for extent in ty.shape.values),
                str(ty.dtype),
            )
        if shape is None:
            if ty.ndim < 0:
                raise ImportFailed(
                    "a tensor's rank is not known at compile time",
                    reason="unknown_rank",
                    hint="fix the inputs that decide it with --const",
                )
            shape = [self.facts.fresh("dyn") for _ in range(ty.ndim)]
        wanted = tuple(self.facts.simplify(extent) for extent in shape)
        if (
            ty.shape is None
            or not isinstance(ty.shape, relax.ShapeExpr)
            or not _identical(ty.shape.values, wanted)
        ):
            variable = self._matched(variable, wanted)
        return Tensor(variable, wanted, str(ty.dtype))

    def _matched(self, variable: relax.Expr, shape: Sequence[Extent]) -> relax.Expr:
        """The tensor with these extents, which every run checks."""
        ty = variable.ty
        if isinstance(ty.shape, relax.ShapeExpr) and any(isinstance(e, tirx.Var) for e in shape):
            # TVM takes a dim matched with an expression to be defined by it, and replaces it
            # without end; and where nobody else needs the dims of the expression, it drops what
            # defines them.
            loose = relax.TensorType(ndim=ty.ndim, dtype=ty.dtype)
            source = self._untyped.get(variable)
            variable = self.bb.match_cast(variable, loose) if source is None else source
        wanted = relax.TensorType([ex.prim(extent) for extent in shape], ty.dtype)
        matched = self.bb.match_cast(variable, wanted)
        self._untyped[matched] = variable
        return matched

    def te(
        self,
        compute: Callable[..., Any],
        *values: Value,
        name: str = "kernel",
        attrs: dict[str, Any] | None = None,
        elementwise: bool = False,
    ) -> Tensor:
        """One tensor program over the values; `compute` takes their TE tensors and gives one TE
        tensor.

        Expressions of dims that `compute` closes over become parameters of the program.
        elementwise: as in `call_program`.
        """
        call, _ = call_program(
            self.bb,
            compute,
            [self.tensor(value) for value in values],
            name,
            self.facts.symbols,
            attrs,
            elementwise,
        )
        return self.emit(call)

    def te_many(
        self, compute: Callable[..., Sequence[Any]], *values: Value, name: str = "kernel"
    ) -> tuple[Tensor, ...]:
        """A tensor program of several outputs from a TE computation (see `te`)."""
        call, outputs = call_program(
            self.bb, compute, [self.tensor(value) for value in values], name, self.facts.symbols
        )
        return self.emit_tuple(call) if len(outputs) > 1 else (self.emit(call),)

    # -- constants and symbols
    # ----------------------------------------------------------------------------------------

    def tensor(self, value: Value) -> Tensor:
        """A run-time tensor holding the value: itself, a constant, or a small program that writes
        the symbols.
        """
        if isinstance(value, Tensor):
            return value
        if value.symbolic:
            return self._write(value)
        cached = self._constants.get(id(value.data))
        if cached is None:
            data = np.ascontiguousarray(value.storage).reshape(value.shape)
            constant = relax.const(tvm.runtime.tensor(data), storage_of(value.dtype))
            cached = (value.data, Tensor(constant, value.shape, value.dtype))
            self._constants[id(value.data)] = cached
        return cached[1]

    def _write(self, value: Known) -> Tensor:
        """A program whose output is the array of symbols (at most MAX_SYMBOLS of them)."""
        items = [ex.prim(item, value.dtype) for item in value.scalars()]
        if len(items) > MAX_SYMBOLS:
            raise ImportFailed(
                f"a shape computation yields {len(items)} symbolic elements, more than "
                f"{MAX_SYMBOLS}",
                reason="symbols",
            )
        strides = [int(np.prod(value.shape[axis + 1 :])) for axis in range(len(value.shape))]

        def element(*index: Any) -> PrimExpr:
            flat = sum((i * s for i, s in zip(index, strides, strict=True)), tirx.const(0, "int64"))
            result = items[-1]
            for position in range(len(items) - 2, -1, -1):
                result = tirx.Select(
                    tirx.EQ(flat, tirx.const(position, "int64")), items[position], result
                )
            return result

        shape = [tirx.IntImm("int64", extent) for extent in value.shape]
        return self.te(lambda: te.compute(shape, element, name="symbols"), name="symbols")

    def known_extents(self, value: Value, what: str) -> Known:
        """The elements as extents: those of a run-time integer tensor become dims, and every run
        checks that they are no less than 0 and no more than any axis may have.

        Raises ImportFailed for a constant that is negative, and as `known_integers`.
        """
        known = self._known(value, what, Reading.EXTENT)
        if isinstance(value, Known):
            for item in known.scalars():
                self.require_extent(item, what)
        return known

    def known_counts(self, value: Value, what: str) -> Known:
        """Read extents that a program of the import counts, which are never negative."""
        return self._known(value, what, Reading.COUNT)

    def known_integers(self, value: Value, what: str) -> Known:
        """The elements as symbols of either sign, which are no extents; bools as conditions.

        Every run checks that they leave room for arithmetic. Raises ImportFailed for a run-time
        tensor of floats, or of more than MAX_SYMBOLS elements.
        """
        return self._known(value, what, Reading.INTEGER)

    def known_positions(self, value: Value, what: str) -> Known:
        """Read symbols of either sign that are cut off at the ends of an axis in any case: beyond
        every axis, a number is as far as any other.
        """
        return self._known(value, what, Reading.POSITION)

    def _known(self, value: Value, what: str, reading: Reading) -> Known:
        if isinstance(value, Known):
            return value
        for done in reading.served_by:
            if (value.expr, done) in self._symbols:
                return self._symbols[value.expr, done][1]
        if (
            not all(isinstance(extent, int) for extent in value.shape)
            or ex.prod(value.shape) > MAX_SYMBOLS
            or value.dtype.startswith(("float", "bfloat"))
        ):
            raise ImportFailed(
                f"{what} is computed at run time and is too large or not of integers, so shapes "
                "cannot follow from it",
                reason="data_dependent",
                hint="fix the input that it comes from with --const, or export the model with "
                "that value constant",
            )
        result = self._read(value, what, Reading.FLAG if value.dtype == "bool" else reading)
        self._symbols[value.expr, reading] = (value, result)
        return result

    def _read(self, value: Tensor, what: str, reading: Reading) -> Known:
        """Variables for the elements, which a program writes beside the number of its check."""
        shape = [int(extent) for extent in value.shape]  # type: ignore[arg-type]
        count = int(np.prod(shape))
        items, variables = reading.symbols(
            self.facts, [what if count == 1 else f"{what}_{index}" for index in range(count)]
        )
        if count:
            number = self.checks.number(reading.message(what)) if reading.checked else None
            written = self.te(
                lambda x: te.compute(
                    [tirx.const(len(variables) + (number is not None), "int64")],
                    reading.writer(x, number),
                    name="integers",
                ),
                value,
                name="integers",
            )
            self._match(written, variables, number)
        data: Any = np.empty(count, dtype=object)
        data[:] = items
        return Known(data.reshape(shape), value.dtype)

    def _match(self, vector: Tensor, variables: Sequence[tirx.Var], number: int | None) -> None:
        """Define variables by a vector; its last element must be the number where one is given."""
        wanted = [*variables, *([] if number is None else [tirx.IntImm("int64", number)])]
        self.bb.match_cast(
            self.bb.emit(relax.op.tensor_to_shape(vector.expr)), relax.ShapeType(wanted)
        )

    def symbol(self, extent: Extent, hint: str = "dim") -> Extent:
        """A name for an extent too complex to carry along: computed once at run time, a plain dim
        from here on.

        Every run checks that it is 0 or more, unless the facts prove it.

        The value goes through a tensor on purpose: TVM inlines a variable bound to an expression,
        and its CanonicalizeBindings recurses without end where that expression holds a Select.
        """
        extent = self.facts.simplify(extent)
        if isinstance(extent, int) or (
            isinstance(extent, tirx.Var) and extent not in self.facts.integers
        ):
            return extent
        key = StructuralKey(extent)
        if key not in self._named:
            self._named[key] = self._new_symbol(extent, hint)
        return self._named[key]

    def _new_symbol(self, extent: PrimExpr, hint: str) -> tirx.Var:
        low, high = self.facts.bounds(extent)
        variable = self.facts.fresh(hint, max(low, 0), high)
        if self.facts.is_nonnegative(extent) and not self.facts.has_integers(extent):
            self.define(variable, extent)
            return variable
        number = self.checks.number(Reading.EXTENT.message(hint))
        check = ex.select(is_extent(extent), tirx.IntImm("int64", number), 0)
        self._match(self._write(Known.of([extent, check])), [variable], number)
        return variable

    def define(self, variable: PrimExpr, extent: Extent) -> None:
        """Give a dim its value, worked out at run time from dims that have theirs."""
        self._match(self._write(Known.of([extent])), [variable], None)

    def require_extent(self, extent: Scalar, what: str) -> None:
        """Check at every run that an expression is 0 or more, unless the facts prove it."""
        if self.facts.is_nonnegative(extent) and not self.facts.has_integers(extent):
            return
        self.require_once(is_extent(extent), Reading.EXTENT.message(what))

    def extents(self, shape: Sequence[Extent], hint: str = "dim") -> tuple[Extent, ...]:
        """The shape simplified, every extent that holds a choice (Select, a comparison, a cast) or
        a run-time integer named by `symbol`.

        Call it on any shape worked out from run-time values: TVM's passes handle arithmetic on
        dims, not choices.
        """
        return tuple(
            self.symbol(extent, hint)
            if _chooses(extent) or self.facts.has_integers(extent)
            else extent
            for extent in map(self.facts.simplify, shape)
        )

    # -- conditions
    # ----------------------------------------------------------------------------------------------

    def require(self, condition: Scalar, message: str) -> None:
        """Fail the import if the condition never holds, do nothing if it always does, else check it
        at every run. What every run requires of a dim narrows its range.
        """
        decided = self.facts.decide(condition)
        if decided is False:
            raise ImportFailed(message, reason="shape")
        if decided is None and self._depth == 0:
            self.facts.confine(condition, message)
        if decided is None:
            number = self.checks.number(message, ex.prim(condition, "bool"))
            expected = ex.select(condition, ex.prim(number), 0)
            self._match(self._write(Known.of([expected])), [], number)

    def require_once(self, condition: Scalar, message: str) -> None:
        """Require a condition once: what all layers require is then checked once a run, and not at
        all where an earlier call of this name required the same of every run.
        """
        key = StructuralKey(condition)
        if key in self._required:
            return
        if self._depth == 0:
            self._required.add(key)
        self.require(condition, message)

    def verify(self, value: Tensor, message: str) -> None:
        """Fail every run where the one int64 in `value` is not the number that the message has at
        this node (see `checks`).
        """
        self._match(value, [], self.checks.number(message))

    def same(self, a: Extent, b: Extent, message: str) -> Extent:
        """Require two extents to be equal and give the simpler of them."""
        if self.facts.same(a, b) is not True:
            self.require(ex.equal(a, b), message)
        return a if isinstance(ex.plain(a), int) else b if isinstance(ex.plain(b), int) else a

    # -- scopes
    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def block(self) -> Iterator[Block]:
        """Bindings emitted inside go to `Block.block`, for a branch or a loop body; constants and
        symbols stay local.
        """
        outer_symbols, outer_constants = dict(self._symbols), dict(self._constants)
        outer_named = dict(self._named)
        inner = Block()
        self._depth += 1
        self.bb._begin_binding_block()
        try:
            yield inner
        finally:
            inner.block = self.bb._end_block()
            self._depth -= 1
            self._symbols, self._constants = outer_symbols, outer_constants
            self._named = outer_named


def _extents_of(call: relax.Expr) -> Iterator[PrimExpr]:
    """The extents of what a call of a tensor program gives."""
    for ty in getattr(call, "ty_args", None) or ():
        for part in ty.fields if isinstance(ty, relax.TupleType) else (ty,):
            if isinstance(part, relax.TensorType) and isinstance(part.shape, relax.ShapeExpr):
                yield from part.shape.values


def _chooses(extent: Extent) -> bool:
    """True for an extent with anything but arithmetic on dims."""
    if not isinstance(extent, PrimExpr):
        return False
    choices: list[PrimExpr] = []
    for kind in (tirx.Select, tirx.Cast, Call):
        tvm_ffi.structural_walk(extent, (kind, choices.append), order="post")
    return bool(choices)


def _identical(have: Sequence[PrimExpr], want: Sequence[Extent]) -> bool:
    """True where TVM itself, without the facts of this import, takes the extents for equal: then no
    cast need say so.
    """
    return len(have) == len(want) and all(
        _evidently_equal(a, ex.prim(b)) for a, b in zip(have, want, strict=True)
    )


def _evidently_equal(a: PrimExpr, b: PrimExpr) -> bool:
    return bool(tvm_ffi.structural_equal(a, b)) or bool(sym.Analyzer().can_prove_equal(a, b))
