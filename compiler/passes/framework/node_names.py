"""Follows the model's nodes through the passes, to the kernels that compute them.

Nothing is written into the module: the variables of an import are named after nodes, and whatever
a pass does to bindings is seen by comparing the names before and after it. A variable that a pass
took away was computed inside what reads it; one that a pass made is a part of what reads it.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from compiler.ir.graph.origins import position_of
from compiler.passes.framework.base import Pass
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.framework.observers import Observer

Nodes = frozenset[int]
_NONE: Nodes = frozenset()


class NodeNames(Observer):
    """Observes all passes up to the scheduled kernels; `labels` are the nodes by position."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._nodes: dict[str, Nodes] = {}
        self._graph = _Graph({}, frozenset(), {})
        self._module: tvm.IRModule | None = None

    def before(self, step: Pass, module: tvm.IRModule) -> None:
        """Reads the first module."""
        if self._module is None:
            self._module, self._graph = module, _graph(module)
            self._nodes = {name: _named_after(name) for name in self._graph.readers}

    def after(self, step: Pass, module: tvm.IRModule) -> None:
        """Moves the nodes to the variables that are there now."""
        if module.same_as(self._module):
            return
        before, now = self._graph, _graph(module)
        self._nodes = _move_nodes(self._nodes, before, now)
        self._module, self._graph = module, now

    def of_kernels(self, module: tvm.IRModule) -> dict[str, tuple[str, ...]]:
        """The names of the nodes that each kernel of the module computes, in the model's order."""
        by_kernel: dict[str, Nodes] = {}
        for name, value in _bindings(module):
            if (kernel := _kernel_of(value)) is not None:
                by_kernel[kernel] = by_kernel.get(kernel, _NONE) | self._nodes.get(name, _NONE)
        return {
            kernel: tuple(self._labels[node] for node in sorted(nodes))
            for kernel, nodes in by_kernel.items()
        }


def _move_nodes(nodes: Mapping[str, Nodes], before: "_Graph", now: "_Graph") -> dict[str, Nodes]:
    """The nodes of the variables of `now`.

    What was computed before a variable that is still there, in variables that are not, is computed
    in those that are new before it; without any, in that variable itself.
    """
    staying = before.readers.keys() & now.readers.keys()
    moved = {name: nodes.get(name) or _named_after(name) for name in now.readers}
    appeared, vanished = now.before(staying), before.before(staying)
    for heir, gone in vanished.items():
        lost = [name for name in gone if name not in before.constants]
        for name, takers in _pair(lost, appeared.get(heir, [heir]), before, now):
            for taker in takers:
                moved[taker] |= nodes[name]
    for heir, names in appeared.items():
        for name in names:
            moved[name] = moved[name] or moved[heir]
    return moved


def _pair(
    lost: Sequence[str], takers: Sequence[str], before: "_Graph", now: "_Graph"
) -> Iterator[tuple[str, Sequence[str]]]:
    """Which of the takers computes each lost variable: where both call the same kernels equally
    often, as FuseOps leaves them, the calls of one kernel in their order; else any.

    FuseOps may move a kernel past others that do not depend on it.
    """
    old, new = _by_kernel(lost, before), _by_kernel(takers, now)
    if old and _counts(old) == _counts(new):
        for kernel, names in old.items():
            for name, taker in zip(names, new[kernel], strict=True):
                yield name, [taker]
    else:
        for name in lost:
            yield name, takers


def _by_kernel(names: Sequence[str], graph: "_Graph") -> dict[str, list[str]]:
    """The variables that each kernel is called for."""
    callers: dict[str, list[str]] = {}
    for name in names:
        for kernel in graph.kernels[name]:
            callers.setdefault(kernel, []).append(name)
    return callers


def _counts(calls: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {kernel: len(names) for kernel, names in calls.items()}


def _named_after(name: str) -> Nodes:
    position = position_of(name)
    return _NONE if position is None else frozenset({position})


def _kernel_of(value: relax.Expr) -> str | None:
    """The kernel that a binding calls."""
    if not isinstance(value, tvm.ir.Call):
        return None
    for callee in (value.op, *value.args[:1]):
        if isinstance(callee, tvm.ir.GlobalVar):
            return str(callee.name_hint)
    return None


@dataclass(frozen=True)
class _Graph:
    """readers: every variable that is bound, in order, with those whose bindings read it.

    constants: those that depend on no input, so that a pass may compute them; kernels: what each
    calls, that of a fused function in order.
    """

    readers: dict[str, list[str]]
    constants: frozenset[str]
    kernels: dict[str, list[str]]

    def before(self, staying: Set[str]) -> dict[str, list[str]]:
        """By variable that stays, those that do not and that it depends on, with none that stays
        between them; in order.
        """
        between: dict[str, list[str]] = {}
        for name in self.readers:
            if name not in staying:
                for heir in _nearest(name, self.readers, staying):
                    between.setdefault(heir, []).append(name)
        return between


def _graph(module: tvm.IRModule) -> _Graph:
    readers: dict[str, list[str]] = {}
    constants = set()
    fused = {
        gvar.name_hint: [
            kernel for _, inner in _within(function.body) if (kernel := _kernel_of(inner))
        ]
        for gvar, function in module.functions.items()
        if _is_fused(function)
    }
    kernels = {}
    for name, value in _bindings(module):
        readers.setdefault(name, [])
        kernel = _kernel_of(value)
        kernels[name] = fused.get(kernel, [kernel]) if kernel else []
        reads = [_key(read) for read in relax.analysis.free_vars(value)]
        if _has_fixed_shape(value) and all(read in constants for read in reads):
            constants.add(name)
        for read in reads:
            if read in readers:
                readers[read].append(name)
    return _Graph(readers, frozenset(constants), kernels)


def _has_fixed_shape(value: relax.Expr) -> bool:
    shape = getattr(value.ty, "shape", None)
    return isinstance(shape, relax.ShapeExpr) and all(
        isinstance(extent, tirx.IntImm) for extent in shape.values
    )


def _is_fused(function: tvm.ir.BaseFunc) -> bool:
    """True if FuseOps made it of the operators of one kernel."""
    return isinstance(function, relax.Function) and "Primitive" in (function.attrs or {})


def _bindings(module: tvm.IRModule) -> Iterator[tuple[str, relax.Expr]]:
    """The bindings of the model's functions, each function with its result as its last variable."""
    for gvar, function in module.functions.items():
        if isinstance(function, relax.Function) and not _is_fused(function):
            yield from _within(function.body)
            if isinstance(function.body, relax.SeqExpr):
                yield f"@{gvar.name_hint}", function.body.body


def _within(body: relax.Expr) -> Iterator[tuple[str, relax.Expr]]:
    return ((_key(variable), value) for variable, value in bindings_within(body))


def _key(variable: relax.Var) -> str:
    """The key of a variable in two modules at a time: passes that write a binding anew keep the
    name of an import, and give other names to whatever comes.
    """
    name = str(variable.name)
    return name if position_of(name) is not None else f"{name} at {hash(variable):x}"


def _nearest(
    name: str, readers: Mapping[str, Iterable[str]], wanted: Container[str]
) -> Iterator[str]:
    """The variables of `wanted` that depend on one, without those that another lies before."""
    seen, waiting = {name}, list(readers.get(name, ()))
    while waiting:
        reader = waiting.pop()
        if reader in seen:
            continue
        seen.add(reader)
        if reader in wanted:
            yield reader
        else:
            waiting += readers.get(reader, ())
