"""prim::If and prim::RaiseException: decided at import, compiled as a branch, or turned into a
run-time check.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir import Expr as PrimExpr

from compiler.errors import ImportFailed
from compiler.ir.aten import structure as st
from compiler.ir.aten.memory import Cell, link
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import control
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.shape import control as ctl
from compiler.ir.shapes import extents as ex


@dataclass(frozen=True)
class TrialResult:
    """The effects of a block, from an import that is discarded: forms of its results and of the
    outer cells it writes.
    """

    forms: list[st.Form]
    cells: dict[Cell, st.Form]
    shared: list[list[Cell]]


@control("prim::If")
def branch(b: Builder, node: Node) -> Any:
    """The results of the block that the condition chooses; where only one of them fits the model,
    every run must choose it.
    """
    condition = truth(b, node.args[0])
    blocks = list(node.raw.blocks())
    taken = condition if isinstance(condition, bool) else node.scope.model.assumed.get(node.label)
    if taken is not None:
        if not isinstance(condition, bool):
            ctl.demand(b, Known.of(condition, "bool"), taken, node.label)
        return results(node.scope.inner().run(blocks[0 if taken else 1]))
    for index, block in enumerate(blocks):
        message = find_raise(block)
        if message is not None:
            b.require(condition if index else ex.negate(condition), f"the model raises: {message}")
            return results(node.scope.inner().run(blocks[1 - index]))
    if not any(_touches_tensors(block) for block in blocks):
        return results(_selected(b, node, condition, blocks))
    return results(_compiled(b, node, condition, blocks))


@control("prim::RaiseException")
def raise_exception(b: Builder, node: Node) -> Any:
    """Reached by the import, it is reached by every run."""
    node.fail(
        f"the model raises: {node.args[0]}",
        reason="raises",
        hint="the declared inputs and consts lead here at every size",
    )


def truth(b: Builder, condition: Any) -> Any:
    """A condition as True, False or an undecided expression."""
    condition = ex.plain(condition) if isinstance(condition, PrimExpr) else bool(condition)
    decided = b.facts.decide(condition)
    return condition if decided is None else decided


def results(values: Sequence[Any]) -> Any:
    """A node's values in the form that handlers return: its only one, or a list."""
    return values[0] if len(values) == 1 else list(values)


def find_raise(block: Any) -> str | None:
    """The message of the exception that a block always raises, None where it raises none."""
    for raw in block.nodes():
        if raw.kind() == "prim::RaiseException":
            return _message(next(iter(raw.inputs())).node())
    return None


def _message(raw: Any) -> str:
    if raw.kind() == "prim::Constant":
        return str(raw.output().toIValue())
    if raw.kind() == "aten::format":
        return _message(next(iter(raw.inputs())).node())
    return "an exception"


def _touches_tensors(block: Any) -> bool:
    """True where a block does more than compute plain numbers."""
    for raw in block.nodes():
        if raw.kind() == "prim::Constant":
            continue
        if not raw.kind().startswith("aten::") or any(
            str(v.type()) not in ("int", "float", "bool", "number")
            for v in (*raw.inputs(), *raw.outputs())
        ):
            return True
    return any(str(output.type()) not in ("int", "bool") for output in block.outputs())


def _selected(b: Builder, node: Node, condition: Any, blocks: Sequence[Any]) -> list[Any]:
    """Numbers of both blocks, chosen between by the condition."""
    one, other = (node.scope.inner().run(block) for block in blocks)
    return [_either(b, condition, p, q) for p, q in zip(one, other, strict=True)]


def _either(b: Builder, condition: Any, then: Any, orelse: Any) -> Any:
    """`then` where the condition holds, else `orelse`; of a number that one block leaves unset,
    the other's.
    """
    if then is orelse or orelse is st.UNSET:
        return then
    return orelse if then is st.UNSET else b.facts.simplify(ex.select(condition, then, orelse))


def import_on_trial(node: Node, run: Callable[[], Sequence[Any]]) -> TrialResult:
    """Import a block and discard the code: only its effects are wanted."""
    memory, start = node.memory, node.memory.serial
    dims = set(node.builder.facts.symbols)
    with memory.trial() as journal, node.builder.block():
        values = run()
        forms = [st.outside(node.builder, st.form_of(memory, value), dims) for value in values]
        cells = {cell: st.content_form(memory, cell) for cell in journal if cell.serial <= start}
        return TrialResult(
            forms,
            cells,
            [[cell for cell in st.cells_of(value) if cell.serial <= start] for value in values],
        )


def _compiled(b: Builder, node: Node, condition: Any, blocks: Sequence[Any]) -> list[Any]:
    memory = node.memory

    def run(block: Any) -> Any:
        return import_on_trial(node, lambda: node.scope.inner().run(block))

    then, orelse = map(run, blocks)
    _refuse_ranks(then.forms, orelse.forms)
    forms = [st.join(b, p, q) for p, q in zip(then.forms, orelse.forms, strict=True)]
    cells = {}
    for cell in {**then.cells, **orelse.cells}:
        now = None if cell in then.cells and cell in orelse.cells else st.content_form(memory, cell)
        cells[cell] = st.join(b, then.cells.get(cell, now), orelse.cells.get(cell, now))  # type: ignore[arg-type]

    def make(block: Any) -> Callable[[], list[Value]]:
        def run() -> list[Value]:
            with memory.trial():
                results = node.scope.inner().run(block)
                carried = [
                    leaf
                    for form, value in zip(forms, results, strict=True)
                    for leaf in st.leaves(memory, form, value)
                ]
                return carried + [
                    leaf
                    for cell, form in cells.items()
                    for leaf in st.content_leaves(memory, form, cell)
                ]

        return run

    tensors = iter(ctl.branch(b, Known.of(condition, "bool"), make(blocks[0]), make(blocks[1])))
    values = [st.rebuild(memory, form, tensors) for form in forms]
    for cell, form in cells.items():
        st.restore(memory, form, cell, tensors)
    for value, *shared in zip(values, then.shared, orelse.shared, strict=True):
        _relate(value, [cell for group in shared for cell in group])
    return values


def _refuse_ranks(then: Sequence[st.Form], orelse: Sequence[st.Form]) -> None:
    """Raise ImportFailed, in a way that makes `forks` try both ways, where a tensor has another
    rank in the other block.
    """
    for p, q in zip(then, orelse, strict=True):
        if isinstance(p, st.Array) and isinstance(q, st.Array) and p.rank != q.rank:
            ctl.refuse_ranks(p.rank, q.rank)


def _relate(value: Any, shared: Sequence[Cell]) -> None:
    for mine in st.cells_of(value):
        for cell in shared:
            link(mine, cell)


def refuse_sharing(shared: Sequence[Cell], what: str) -> None:
    """Raise ImportFailed where cells repeat."""
    if len(set(map(id, shared))) != len(shared):
        raise ImportFailed(
            f"{what} share memory and are changed in place",
            reason="unsupported_mutation",
            hint="write out of place: y = x + 1, not x += 1",
        )
