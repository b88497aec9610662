"""Writes the module after every phase of a pipeline to a folder, for people to read."""

import json
from hashlib import sha256
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.errors import summary
from compiler.ir.imported import Ranges
from compiler.passes.framework.base import Pass, Phase
from compiler.passes.framework.kernel_notes import kernel_table
from compiler.passes.framework.observers import Observer, Timing
from compiler.passes.framework.saved import SavedModule, write_module
from relaxd.contract.bundle.manifest import DUMP_START

KERNELS = "kernels"
_LONGEST_NAME = 100
_MOST_CONSTANTS = 16 << 20
"""Bytes of constants up to which a module is saved for `relaxd opt`, too."""


class Dump(Observer):
    """Writes into `folder`, as TVMScript without the values of constants:

    `00_import.py`, `10_graph.py` and so on: the module after each phase;
    `70_lowered_loops/NAME.py` and so on: the functions after each phase that sees kernels alone;
    `kernels/NAME.py` and `kernels.json`: the scheduled kernels, and which family took each and why;
    `00_import.json` and so on: the same for `relaxd opt`, with the values of constants, where these
    have at most 16 MiB;
    `passes.json`: the seconds of every pass, of all kernels together below the loops;
    `NN_before_PASS.py`: where a pass fails, the module that it was given.
    """

    def __init__(
        self, folder: Path, target: str = "native", ranges: Ranges = MappingProxyType({})
    ) -> None:
        self._folder, self._target, self._ranges = folder, target, ranges
        self._timing = Timing()
        folder.mkdir(parents=True, exist_ok=True)

    def write_start(self, module: tvm.IRModule) -> None:
        """Writes the module that the pipeline starts with."""
        self._write_module(DUMP_START.removesuffix(".py"), module)

    def before(self, step: Pass, module: tvm.IRModule) -> None:
        """Starts the clock of the pass."""
        self._timing.before(step, module)

    def after(self, step: Pass, module: tvm.IRModule) -> None:
        """Stops the clock of the pass."""
        self._timing.after(step, module)

    def after_failure(self, step: Pass, module: tvm.IRModule) -> None:
        """Writes the module that a failing pass was given."""
        self._write_module(f"{_number(step.phase)}_before_{step.name}", module)
        self._write_passes()

    def phase_ended(self, phase: Phase, module: tvm.IRModule) -> None:
        """Writes the module, and behind the loops every kernel."""
        name = f"{_number(phase)}_{phase.value.replace(' ', '_')}"
        if phase.is_by_kernel:
            self._write_functions(name, module)
        else:
            self._write_module(name, module)
        self._write_passes()
        if phase is Phase.LOOPS:
            self._write_kernels(module)

    def _write_module(self, name: str, module: tvm.IRModule) -> None:
        self._write(f"{name}.py", _script(module))
        if _constant_bytes(module) > _MOST_CONSTANTS:
            return
        try:
            saved = SavedModule(module, self._target, self._ranges)
            write_module(self._folder / f"{name}.json", saved)
        except MemoryError:
            raise
        except Exception as error:  # as in `_script`
            self._write(f"{name}.json", f"TVM cannot save this: {summary(error)}\n")

    def _write_kernels(self, module: tvm.IRModule) -> None:
        self._write_functions(KERNELS, module)
        self._write(f"{KERNELS}.json", _json(kernel_table(module)))

    def _write_functions(self, folder: str, module: tvm.IRModule) -> None:
        (self._folder / folder).mkdir(exist_ok=True)
        for gvar, func in module.functions.items():
            if isinstance(func, tirx.PrimFunc):
                self._write(f"{folder}/{_file_name(gvar.name_hint)}.py", _script(func))

    def _write_passes(self) -> None:
        rows = [
            {"phase": phase.value, "pass": name, "seconds": round(seconds, 4)}
            for phase, name, seconds in self._timing.totals()
        ]
        self._write("passes.json", _json(rows))

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, encoding="utf-8")


def _constant_bytes(module: tvm.IRModule) -> int:
    sizes: dict[int, int] = {}

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst) and hasattr(node.value, "numpy"):
            tensor = node.value
            bits = tvm.runtime.DataType(str(tensor.dtype)).bits
            sizes[node.__chandle__()] = prod(tensor.shape) * -(-bits // 8)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return sum(sizes.values())


def _number(phase: Phase) -> str:
    return f"{10 * phase.position:02}"


def _file_name(kernel: str) -> str:
    """The kernel's name, cut where a fused kernel's is too long for a file system."""
    if len(kernel) <= _LONGEST_NAME:
        return kernel
    return f"{kernel[:_LONGEST_NAME]}_{sha256(kernel.encode()).hexdigest()[:8]}"


def _json(document: Any) -> str:
    return json.dumps(document, indent=2) + "\n"


def _script(node: Any) -> str:
    """TVMScript, or a comment with the reason where TVM cannot print the node: a dump must not
    decide whether a build succeeds.
    """
    try:
        return str(node.script())
    except MemoryError:
        raise
    except Exception as error:
        return f"# TVM cannot print this: {summary(error)}\n"
