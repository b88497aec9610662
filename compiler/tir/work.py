"""Operations and bytes of a tensor program, counted from its loops before they are scheduled."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import (
    Expr,
    as_int,
    bits_of,
    children,
    dtype_of,
    is_choice,
    loads,
    nodes,
    op_name,
)
from compiler.tir.loops import Stmt
from compiler.tir.polynomials import (
    UNIT,
    Polynomial,
    UnknownExtent,
    least,
    multiply_all,
    polynomial_of,
    total,
)

ELEMENT_FLOPS = "relaxd.flops"
"""Annotation of a block: the operations of one element of its result, all steps of its reduction
together, where the loops that are written later take fewer than the program states."""

_SMALL = 1024
"""Elements of a tensor that is counted whole, without a look at which of them are read."""

Values = Mapping[Any, Polynomial]

_NOTHING: frozenset[Any] = frozenset()

_ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Min, prim.Max)
_FREE = ("reinterpret", "likely", "large_uint_imm")


@dataclass(frozen=True)
class Work:
    """Work of one call. flops: operations on elements, a multiply-add being two and a function such
    as exp one; bytes: of the elements of arguments that are read or written, each once.

    dtype: of most of the operations, empty without any.
    """

    flops: Polynomial
    bytes: Polynomial
    dtype: str


def work_of(func: tirx.PrimFunc, values: Values) -> Work:
    """The work of a call whose dims are `values`. A value that stays the same in a loop is counted
    as computed once before it. Raises UnknownExtent for a program whose loops do not tell.
    """
    count = _Count(dict(values))
    try:
        count.visit(func.body)
    except TypeError as error:  # `children` knows the expressions that programs hold, not all
        raise UnknownExtent(str(error)) from error
    flops = {dtype: total(parts) for dtype, parts in count.flops.items()}
    touched = (count.bytes_of(param) for param in func.params if hasattr(param.ty, "shape"))
    return Work(total(flops.values()), total(touched), _most(flops))


def _most(flops: Mapping[str, Polynomial]) -> str:
    """The dtype with the most operations where dims are large, of one size each."""
    sizes = {
        dtype: sum(f * 64 ** sum(p for _, p in monomial) for monomial, f in count.terms.items())
        for dtype, count in flops.items()
    }
    return max(sizes, key=lambda dtype: sizes[dtype]) if any(sizes.values()) else ""


@dataclass
class _Count:
    """values: of dims; loops: extents of the loops around; bound: the variables of loops that a
    variable depends on; flops: by dtype; touched: how many elements of a buffer each access
    reaches.
    """

    values: dict[Any, Polynomial]
    loops: dict[Any, Polynomial] = field(default_factory=dict)
    bound: dict[Any, set[Any]] = field(default_factory=dict)
    flops: dict[str, list[Polynomial]] = field(default_factory=lambda: defaultdict(list))
    touched: list[tuple[Any, Polynomial]] = field(default_factory=list)
    # Of expressions by address, with the expression.
    variables: dict[int, tuple[Expr, frozenset[Any]]] = field(default_factory=dict)

    def visit(self, stmt: Stmt) -> None:
        """Counts a statement; raises UnknownExtent."""
        match stmt:
            case tirx.SeqStmt():
                for part in stmt.seq:
                    self.visit(part)
            case tirx.For():
                self._loop(stmt.loop_var, stmt.extent, stmt.body)
            case tvm.s_tir.SBlockRealize():
                self._block(stmt)
            case tirx.BufferStore():
                self._store(stmt)
            case tirx.IfThenElse():
                self._reads(stmt.condition)
                self._branch(stmt)
            case tirx.Bind():
                self._reads(stmt.value)
                self._bind(stmt.var, stmt.value)
            case tirx.AttrStmt():
                self.visit(stmt.body)
            case tirx.AllocBuffer() | tirx.DeclBuffer() | tirx.Evaluate():
                pass
            case _:
                raise UnknownExtent(type(stmt).__name__)

    def _branch(self, stmt: Any) -> None:
        """Raises UnknownExtent where the sides differ: of what is done under a condition nobody
        knows how often.
        """
        counts = []
        for branch in (stmt.then_case, stmt.else_case):
            if branch is None:
                continue
            count = _Count(
                dict(self.values),
                dict(self.loops),
                dict(self.bound),
                variables=self.variables,
            )
            count.visit(branch)
            counts.append(count)
        if any(count.total() != counts[0].total() for count in counts):
            raise UnknownExtent("branches that differ")
        self.touched += counts[0].touched
        for dtype, parts in counts[0].flops.items():
            self.flops[dtype] += parts

    def total(self) -> Polynomial:
        """The operations counted so far."""
        return total(part for parts in self.flops.values() for part in parts)

    def _loop(self, var: Any, extent: Expr, body: Stmt) -> None:
        self.loops[var] = polynomial_of(extent, self.values)
        self.visit(body)
        del self.loops[var]

    def _bind(self, var: Any, value: Expr) -> None:
        self.bound[var] = self._names(value)
        try:
            self.values[var] = polynomial_of(value, self.values)
        except UnknownExtent:
            # Only a loop up to it would need its value, and says so.
            self.values.pop(var, None)

    def _block(self, realize: Any) -> None:
        """A block's own variables stand for the loops around it."""
        block = realize.block
        outer = self.loops
        self.loops = dict(outer)
        for axis, bound in zip(block.iter_vars, realize.iter_values, strict=True):
            if bound in outer or as_int(bound) is not None:
                self.loops[axis.var] = outer.get(bound, UNIT)
                self.loops.pop(bound, None)
            else:
                raise UnknownExtent(f"a block at {bound}")
        declared = block.annotations.get(ELEMENT_FLOPS)
        if declared is None:
            self.visit(block.body)
        else:
            self._add_declared(block, int(declared))
        self.loops = outer

    def _add_declared(self, block: Any, flops: int) -> None:
        spatial = [axis.var for axis in block.iter_vars if int(axis.iter_type) == 0]
        self.flops[dtype_of(block.body.value)].append(self._volume(set(spatial)) * flops)
        self._reads(block.body.value)
        self._touch(block.body.buffer, block.body.indices)

    def _store(self, stmt: Any) -> None:
        for node in nodes(stmt.value):
            if isinstance(node, prim.Let):
                self._bind(node.var, node.value)
        updates = any(load.source.same_as(stmt.buffer) for load in loads(stmt.value))
        for node in _computed(stmt.value):
            # A sum takes its step in every iteration, whatever the step depends on.
            accumulates = updates and any(load.source.same_as(stmt.buffer) for load in loads(node))
            within = set(self.loops) if accumulates else self._names(node)
            self.flops[dtype_of(node)].append(self._volume(within))
        self._reads(stmt.value)
        for index in stmt.indices:
            self._reads(index)
        self._touch(stmt.buffer, stmt.indices)

    def _reads(self, expr: Expr) -> None:
        for load in loads(expr):
            self._touch(load.source, load.indices)

    def _touch(self, buffer: Any, indices: Iterable[Expr]) -> None:
        names: set[Any] = set().union(*map(self._names, indices))
        self.touched.append((buffer, self._volume(names)))

    def _volume(self, names: Set[Any]) -> Polynomial:
        """How many combinations of values the loops' variables take."""
        return multiply_all(extent for var, extent in self.loops.items() if var in names)

    def bytes_of(self, buffer: Any) -> Polynomial:
        """Bytes of the parameter that accesses reach, at most all of it."""
        reached = [count for source, count in self.touched if source.same_as(buffer)]
        size = multiply_all(polynomial_of(extent, self.values) for extent in buffer.ty.shape)
        small = size.value is not None and size.value < _SMALL
        elements = size if small else least(size, total(reached))
        return elements * math.ceil(bits_of(dtype_of(buffer)) / 8)

    def _names(self, expr: Expr) -> set[Any]:
        """The variables that an expression depends on, of loops and dims."""
        variables = set(self._variables(expr))
        return variables.union(*(self.bound[var] for var in variables & self.bound.keys()))

    def _variables(self, expr: Expr) -> frozenset[Any]:
        """The variables in an expression; each part of a sum is asked for, and so is the sum."""
        key = expr.__chandle__()
        if key not in self.variables:
            if isinstance(expr, tvm.ir.Var):
                variables = frozenset((expr,))
            else:
                variables = _NOTHING.union(*map(self._variables, children(expr)))
            self.variables[key] = expr, variables
        return self.variables[key][1]


def _computed(value: Expr) -> Iterator[Expr]:
    """The operations on elements: neither those of indices nor of conditions, and of a choice those
    of the side that has more.
    """
    seen: set[int] = set()

    def visit(node: Expr) -> Iterator[Expr]:
        if node.__chandle__() in seen or isinstance(node, tvm.ir.TensorLoad):
            return
        seen.add(node.__chandle__())
        if isinstance(node, prim.Select) or is_choice(node):
            yield from max((list(visit(side)) for side in children(node)[1:]), key=len)
            return
        if isinstance(node, _ARITHMETIC) or (isinstance(node, tvm.ir.Call) and _costs(node)):
            yield node
        for part in children(node):
            yield from visit(part)

    yield from visit(value)


def _costs(call: Any) -> bool:
    return op_name(call).rpartition(".")[2] not in _FREE
