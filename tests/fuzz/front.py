"""The common part of builds of one graph at several geometries: the import, and the passes of the
graph, neither of which sees the vectors. The first of them does that work for the others.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import tvm

from compiler import build
from compiler.frontend import entry
from compiler.passes import manager
from compiler.passes.framework.base import Pass, Phase
from compiler.passes.framework.observers import Observer
from compiler.targets import Target


class Front:
    """The last graph that was built, by its bytes."""

    def __init__(self) -> None:
        self._model = b""
        self._imported: Any = None
        self._module: tvm.IRModule | None = None

    @contextmanager
    def share(self, model: bytes) -> Iterator[None]:
        """A build of the model within takes what an earlier one of it left; observers, which no
        code depends on, see the first alone.
        """
        if model != self._model:
            self._model, self._imported, self._module = model, None, None
        read, run = entry.imported_from, manager.run

        def imported_once(*arguments: Any) -> Any:
            if self._imported is None:
                self._imported = read(*arguments)
            return self._imported

        def run_once(
            passes: Sequence[Pass],
            module: tvm.IRModule,
            observers: Sequence[Observer] = (),
            target: Target | None = None,
        ) -> tvm.IRModule:
            graph = [step for step in passes if step.phase is Phase.GRAPH]
            if not graph:
                return run(passes, module, observers, target)
            rest = passes[len(graph) :]
            first = self._module is None
            if self._module is None:
                self._module = run(graph, module, observers, target)
            return run(rest, _copy(self._module), observers if first else (), target)

        with (
            mock.patch.object(build, "imported_from", imported_once),
            mock.patch.object(manager, "run", run_once),
        ):
            yield


def _copy(module: tvm.IRModule) -> tvm.IRModule:
    """Passes may change the module that they are given, though not its functions."""
    return tvm.IRModule(
        dict(module.functions), attrs=module.attrs, global_infos=module.global_infos
    )
