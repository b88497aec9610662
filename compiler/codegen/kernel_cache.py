"""Takes the machine code of kernels from earlier builds where these compiled the same kernels.

A kernel's key is a digest over the canonical form of its loops, before they are lowered, over its
name, the target, and everything that decides what code they become: our own sources, TVM, LLVM.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from compiler.codegen.side_by_side import compile_each, each
from compiler.runtimes import canonical
from compiler.targets import Target
from compiler.toolchain import versions
from compiler.toolchain.objects import Objects

_PARTS = ("tvm", "tvm_ffi", "llvm", "pipeline")
"""The versions that decide the code of given loops."""

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class KernelCache:
    """kept: objects of earlier builds, which are only read; fresh: receives those that this build
    compiles, and what it used; form: the library that writes canonical forms; report: gets the
    number of kernels, and of those that were there.
    """

    kept: Objects
    fresh: Objects
    form: Path
    report: Report = lambda kernels, found: None

    def compiled(self, programs: tvm.IRModule, target: Target) -> list[Any]:
        """One module of TVM's for each program, in the order of their names: an object, whether it
        was compiled now or earlier.
        """
        keys = self._keys(programs, target)
        found = {name: code for name, key in keys.items() if (code := self._get(key)) is not None}
        made = self._compile(programs, found, target)
        for name in made.keys() & keys.keys():
            self.fresh.put(keys[name], made[name])
        self.fresh.note_use(keys[name] for name in found)
        self.report(len(programs.functions), len(found))
        return _modules({**found, **made})

    def _get(self, key: str) -> bytes | None:
        """From this build's own first: the search for a mismatch compiles its parts again."""
        own = self.fresh.get(key)
        return self.kept.get(key) if own is None else own

    def _keys(self, programs: tvm.IRModule, target: Target) -> dict[str, str]:
        """Of each program that has a canonical form."""
        toolchain = versions.versions()
        given = {"target": target.to_tvm(), **{part: toolchain[part] for part in _PARTS}}
        context = json.dumps(given, sort_keys=True)
        keys = {}
        for gvar, program in programs.functions.items():
            form = canonical.digest(program, self.form)
            if form is not None:
                described = f"{context}\0{gvar.name_hint}\0{form.hex()}"
                keys[gvar.name_hint] = hashlib.sha256(described.encode()).hexdigest()
        return keys

    def _compile(
        self, programs: tvm.IRModule, found: Mapping[str, bytes], target: Target
    ) -> dict[str, bytes]:
        """Objects by name of the programs that were not found."""
        missing = {
            gvar: program
            for gvar, program in programs.functions.items()
            if gvar.name_hint not in found
        }
        if not missing:
            return {}
        machine = tvm.target.Target(target.to_tvm())
        names = sorted(gvar.name_hint for gvar in missing)
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, f"{index}.o") for index in range(len(names))]
            made = compile_each(tvm.IRModule(missing, attrs=programs.attrs), machine)
            objects = each(_object, zip(made, files, strict=True))
        return dict(zip(names, objects, strict=True))


def _object(item: tuple[Any, Path]) -> bytes:
    module, file = item
    module.write_to_file(str(file))
    return file.read_bytes()


def _modules(objects: Mapping[str, bytes]) -> list[Any]:
    """Objects by name as TVM's modules, in the order of the names."""
    modules = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.o")
        for name in sorted(objects):
            file.write_bytes(objects[name])
            modules.append(tvm.runtime.load_static_library(str(file), [name]))
    return modules
