"""Fuses softmax(q @ k, changed elementwise) @ v into one tensor program, whose scores never leave
the cache. Zeros may take the place of a softmax that is NaN.

Exported graphs split and join heads by transposes and slices. The program reads q, k and v through
them, and writes its result in the order of the transpose behind it.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.passes.cpu.families.attention.program import (
    Access,
    Attention,
    AxisAccess,
    Change,
    attention,
)
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.layout.channels_last import axes_of
from compiler.passes.match import accesses
from compiler.passes.match.axis_parts import Part, read_part, read_prefix
from compiler.passes.match.axis_repeats import read_repeat
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.passes.match.scores import scores_of, softmax_of
from compiler.passes.match.widened_rows import BYTES, STORED_FLOATS, read_widened
from compiler.tir.exprs import as_int, op_name

OPAQUE = {"op_pattern": 8}
"""The attribute of a function to which FuseOps joins nothing."""


@dataclass(frozen=True)
class FuseAttention(ModulePass):
    """Replaces each float32 attention with a known head size by one tensor program.

    Of a library that keeps caches, a query's result does not depend on how many queries there are:
    an answer must not depend on those that are computed beside it.
    """

    name = "fuse_attention"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        return relax.transform.DeadCodeElimination()(rewrite_functions(_Rewriter(module)))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.used: Counter[Any] = Counter()
        self.turned: dict[Any, Any] = {}
        self.written: dict[Any, Any] = {}
        self.keeps_caches = False
        for function in module.functions.values():
            if isinstance(function, relax.Function):
                relax.analysis.post_order_visit(function, self._count)

    def _count(self, expr: Any) -> None:
        if op_name(expr) == "relax.permute_dims":
            self.turned[expr.args[0]] = expr
        # Caches alone are written where they lie.
        self.keeps_caches |= op_name(expr) == "relax.call_tir_inplace"
        for arg in getattr(expr, "args", None) or getattr(expr, "fields", None) or ():
            if isinstance(arg, relax.Var):
                self.used[arg] += 1

    def visit_var_binding_(self, binding: Any) -> None:
        name = op_name(binding.value)
        # The fused program writes in the order of this transpose already.
        if name == "relax.permute_dims" and binding.value.args[0] in self.written:
            self.rebind(binding.var, self.written[binding.value.args[0]])
            return
        match = self._match(binding) if name == "relax.matmul" else None
        if match is None:
            super().visit_var_binding_(binding)
            return
        self.rebind(binding.var, self._call(match))
        if match.order != tuple(range(match.q.rank)):
            self.written[binding.var] = self.get_var_remap(binding.var)

    def _order(self, var: Any) -> tuple[int, ...]:
        """The order of axes in which `var` is read: that of a transpose if it is the only reader
        and keeps rows contiguous.
        """
        as_it_is = tuple(range(var.ty.ndim))
        turned = (
            self.turned.get(var)
            if isinstance(var, relax.DataflowVar) and self.used[var] == 1
            else None
        )
        order = as_it_is if turned is None else axes_of(turned)
        return order if order[-1] == as_it_is[-1] else as_it_is

    def _call_of(self, expr: Any) -> Any:
        """The call that `expr` is bound to, else None."""
        bound = self.value_of(expr)
        return bound if isinstance(bound, relax.Call) else None

    def _match(self, binding: Any) -> Attention | None:
        call = binding.value
        # Softmax results that something else reads have to be written to memory anyway.
        if self.used[call.args[0]] != 1:
            return None
        in_bfloat16, (weights, v) = self._operands(call)
        if (read := softmax_of(self.module, self._call_of, weights)) is None:
            return None
        softmax, safe = read
        if str(call.ty.dtype) != "float32" or (safe and self._is_read_elsewhere(weights)):
            return None
        changes: list[Change] = []
        scores = scores_of(self._call_of, softmax.args[0], softmax.ty, changes)
        if scores is None:
            return None
        both_in_bfloat16, (left, right) = self._operands(self._call_of(scores))
        if in_bfloat16 != both_in_bfloat16:
            return None
        q, k, v = (
            self._access(left, -1),
            self._access(right, -2),
            self._access(v, -1, scaled=False),
        )
        # q and k are read from in front of their scales, which are applied to the scores instead;
        # where the scaled numbers are rounded, to them.
        factor = q.factor * k.factor
        if factor != 1 and not in_bfloat16:
            changes.append(Change("relax.multiply", [None, relax.const(factor, "float32")]))
        order = self._order(binding.var)
        match = Attention(
            q, k, v, tuple(reversed(changes)), order, in_bfloat16, self.keeps_caches, safe
        )
        return match if _suits(match) else None

    def _is_read_elsewhere(self, weights: Any) -> bool:
        """True if more than the choice between zeros and a softmax reads the softmax."""
        is_nan, _, softmax = self._call_of(weights).args
        return self.used[is_nan] > 1 or self.used[softmax] > 2

    def _operands(self, matmul: Any) -> tuple[bool, tuple[Any, Any]]:
        """Tell whether both operands are rounded to bfloat16, and what they are rounded from; else
        the operands themselves.
        """
        left, right = (self.visit_expr(arg) for arg in matmul.args)
        plain = self.find_float32_source(left), self.find_float32_source(right)
        return (False, (left, right)) if None in plain else (True, plain)

    def _access(self, expr: Any, last: int, scaled: bool = True) -> Access:
        """The view of the farthest tensor that `expr` can be read from with its axis `last`
        contiguous.
        """
        best = now = Access(expr, tuple(AxisAccess(axis) for axis in range(expr.ty.ndim)))
        further: Access | None = now
        while further is not None and (scaled or further.factor == 1):
            now = further
            # The kernel reads rows in vectors, so a view counts only if its rows are contiguous.
            if now.axes[-1].axis == last % now.rank:
                best = now
            further = self._further(now)
        return best

    def _further(self, access: Access) -> Access | None:
        """The same elements as a view of the tensor that `access.tensor` is computed from."""
        bound = self.value_of(access.tensor)
        name = op_name(bound)
        if name == "relax.permute_dims":
            return accesses.through_permutation(access, bound.args[0], axes_of(bound))
        if name in ("relax.reshape", "relax.squeeze"):
            repeated = read_repeat(self.module, self._call_of, bound)
            return (
                accesses.through_reshape(access, bound.args[0])
                if repeated is None
                else accesses.through_repeat(access, *repeated)
            )
        if name in ("relax.multiply", "relax.divide"):
            return self._unscaled(access, bound)
        widened = read_widened(self.module, bound)
        if widened is not None:
            return _through_widened(access, widened)
        prefix = read_prefix(bound)
        if prefix is not None:
            return accesses.through_prefix(access, *prefix)
        part = read_part(self.module, bound)
        return None if part is None else accesses.through_part(access, *part)

    def _unscaled(self, access: Access, call: Any) -> Access | None:
        """The same elements as a view of the tensor that a call multiplies or divides by one
        constant; None for any other call.
        """
        one, other = call.args
        if op_name(call) == "relax.multiply" and self.constant_of(one) is not None:
            one, other = other, one
        constant = self.constant_of(other)
        if constant is None or constant.value.numpy().size != 1 or one.ty.ndim != call.ty.ndim:
            return None
        factor = np.float64(constant.value.numpy().reshape(()))
        if op_name(call) == "relax.divide":
            factor = np.reciprocal(factor) if factor else np.float64("inf")
        return (
            replace(access, tensor=one, factor=access.factor * float(factor))
            if np.isfinite(factor)
            else None
        )

    def _call(self, match: Attention) -> Any:
        others = [
            operand
            for change in match.changes
            for operand in change.operands
            if operand is not None
        ]
        inputs = [match.q.tensor, match.k.tensor, match.v.tensor, *others]
        return self.builder_.call_te(
            lambda counts, *tensors: attention(match.with_counts(counts), *tensors),
            match.counts,
            *inputs,
            primfunc_name_hint="attention",
            primfunc_attrs=OPAQUE,
        )


def _through_widened(access: Access, source: Any) -> Access:
    """Follows the program that gives rows of `source` as float32."""
    if str(source.ty.dtype) != BYTES:
        return replace(access, tensor=source)
    # The scale behind each row is no number of it.
    last = len(access.axes) - 1
    size = access.tensor.ty.shape.values[last]
    return accesses.through_part(access, source, Part(last, 0, int(size)))


def _suits(match: Attention) -> bool:
    """True if q, k and v have shapes that fit, heads of a known size, and contiguous rows."""
    accesses = (match.q, match.k, match.v)
    if not all(isinstance(access.tensor.ty.shape, relax.ShapeExpr) for access in accesses):
        return False
    asked, *stored = (str(access.tensor.ty.dtype) for access in accesses)
    if asked != "float32" or not {"float32", *STORED_FLOATS, BYTES}.issuperset(stored):
        return False
    rank = match.q.rank
    if rank < 3 or any(access.rank != rank for access in accesses):
        return False
    if [access.axes[-1].axis for access in accesses] != [rank - 1, rank - 2, rank - 1]:
        return False
    q, k, v = (access.extents(access.tensor.ty.shape.values) for access in accesses)
    analyzer = tvm.sym.Analyzer()
    same = all(
        analyzer.can_prove_equal(a, b) and analyzer.can_prove_equal(a, c)
        for a, b, c in zip(q[:-2], k[:-2], v[:-2], strict=True)
    )
    depth, width = (as_int(extent) for extent in (q[-1], v[-1]))
    # A sum over one element is none when the kernel is found.
    if not same or depth is None or width is None or not 1 < depth <= 256 or not 0 < width <= 256:
        return False
    # Where sums have one order, and of pairs, rows are cut into equal vectors.
    return not (match.steady or match.is_bfloat16) or depth % 8 == width % 8 == 0
