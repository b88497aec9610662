"""Walks what a Relax function binds, in the order in which it is computed."""

from collections.abc import Iterator

from tvm import relax


def bindings_within(body: relax.Expr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Each variable and its value; those of both branches of a choice come before the choice."""
    if not isinstance(body, relax.SeqExpr):
        return
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                yield from bindings_within(value.true_branch)
                yield from bindings_within(value.false_branch)
            yield binding.var, value
