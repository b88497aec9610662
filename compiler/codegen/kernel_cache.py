"""Takes the machine code of kernels, and of the C that calls them, from earlier builds where these
compiled the same.

A kernel's key is a digest over the canonical form of its loops, before they are lowered, over its
name, the target, the library's backend, and everything that decides what code they become: our
own sources, TVM, LLVM.
From the digest of a program ahead of its scheduling, a record leads to the same object. The key of
C is a digest over its text.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from compiler.codegen import kernel_records
from compiler.codegen.side_by_side import OnDone
from compiler.passes.cpu.recall import StoredKernel
from compiler.passes.cpu.schedule import VIEW
from compiler.passes.framework.attributes import OBJECT
from compiler.passes.framework.kernel_notes import FOREIGN, REMEMBERED, KernelNote, bare
from compiler.runtimes import canonical
from compiler.targets import Target
from compiler.toolchain import versions
from compiler.toolchain.objects import Objects
from relaxd.contract.options import Flavour

_PARTS = ("tvm", "tvm_ffi", "llvm", "pipeline")
"""The versions that decide the code of given loops; C takes that of its compiler instead."""

Report = Callable[[int, int], None]
Compile = Callable[[tvm.IRModule, OnDone], dict[str, bytes]]
"""Gives the code of each program by its name, and says on the way how many have theirs."""


@dataclass(frozen=True)
class KernelCache:
    """earlier: objects of earlier builds, which are only read; fresh: receives those that this
    build compiles, and what it used; form: the library that writes canonical forms; report: gets
    the number of kernels, and of those that were there, before the others are compiled; `flavour`:
    the library's backend; on_compiled: gets how many of the others are compiled, of how many;
    recalled_objects: by key, those that stand for kernels without loops, read ahead of a worker
    that removes old ones; used: the keys of what this build took from earlier ones.
    """

    earlier: Objects
    fresh: Objects
    form: Path
    report: Report = lambda kernels, stored: None
    flavour: Flavour = Flavour.VM
    on_compiled: Report = lambda compiled, missing: None
    recalled_objects: dict[str, bytes] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def key(self, name: str, program: tirx.PrimFunc, context: str, target: Target) -> str | None:
        """The key of the record of a program that is not scheduled, as in `Recall`."""
        described = json.dumps([self._context(target), target.to_json(), context])
        return self._key(f"record\0{described}", name, program)

    def find(self, key: str) -> StoredKernel | None:
        """The kernel that a program of this key became, if its object is there."""
        record = self._get(key)
        kernel = None if record is None else kernel_records.decode(record)
        code = None if kernel is None else self._get(kernel.object)
        if kernel is None or code is None:
            return None
        self.recalled_objects[kernel.object] = code
        return kernel

    def compile_all(
        self, programs: tvm.IRModule, target: Target, compile_missing: Compile
    ) -> dict[str, bytes]:
        """The code of each program by its name, whether it was compiled now or earlier."""
        stubs, marked = _texts(OBJECT, programs), _texts(REMEMBERED, programs)
        rest = _bare({g: f for g, f in programs.functions.items() if g.name_hint not in stubs})
        keys = self._keys(rest, target)
        stored = {name: code for name, key in keys.items() if (code := self._get(key)) is not None}
        missing = {gvar: func for gvar, func in rest.items() if gvar.name_hint not in stored}
        self.report(len(programs.functions), len(stored) + len(stubs))
        module = tvm.IRModule(missing, attrs=programs.attrs)

        def count(done: int) -> None:
            self.on_compiled(done, len(missing))

        compiled = compile_missing(module, count) if missing else {}
        for name in compiled.keys() & keys.keys():
            self.fresh.put(keys[name], compiled[name])
        for name in marked.keys() & keys.keys():
            self._remember(marked[name], KernelNote.of(programs[name]), keys[name])
        recalled = {name: self.recalled_objects[key] for name, key in stubs.items()}
        records = (marked[name] for name in stubs)
        self._note_use([*(keys[name] for name in stored), *stubs.values(), *records])
        return {**stored, **compiled, **recalled}

    def compiled_c(self, described: str, compile_source: Callable[[], bytes]) -> bytes:
        """The object of C, whether it was compiled now or earlier; described: all that the compiler
        reads, and how.
        """
        toolchain = versions.versions()
        context = json.dumps({part: toolchain[part] for part in ("linker", "pipeline")})
        key = hashlib.sha256(f"c\0{context}\0{described}".encode()).hexdigest()
        if (code := self._get(key)) is not None:
            self._note_use([key])
            return code
        code = compile_source()
        self.fresh.put(key, code)
        return code

    def _note_use(self, keys: Iterable[str]) -> None:
        self.used.update(keys)
        self.fresh.note_use(sorted(self.used))

    def _remember(self, key: str, note: KernelNote, code: str) -> None:
        """Leave a record of a kernel; code: the key of its object."""
        # TVM asks the loops of others whether a call of them is a view.
        if note.family not in (FOREIGN, VIEW):
            self.fresh.put(key, kernel_records.encode(StoredKernel(note, code)))

    def _get(self, key: str) -> bytes | None:
        """From this build's own first: the search for a mismatch compiles its parts again."""
        own = self.fresh.get(key)
        return self.earlier.get(key) if own is None else own

    def _keys(self, programs: Mapping[Any, Any], target: Target) -> dict[str, str]:
        """The key of each program that has a canonical form."""
        context = self._context(target)
        keys = {g.name_hint: self._key(context, g.name_hint, f) for g, f in programs.items()}
        return {name: key for name, key in keys.items() if key is not None}

    def _key(self, context: str, name: str, program: tirx.PrimFunc) -> str | None:
        form = canonical.digest(program, self.form)
        if form is None:
            return None
        return hashlib.sha256(f"{context}\0{name}\0{form.hex()}".encode()).hexdigest()

    def _context(self, target: Target) -> str:
        """The digest's part that is the same for all kernels of a build."""
        toolchain = versions.versions()
        parts: dict[str, Any] = {part: toolchain[part] for part in _PARTS}
        parts |= {"target": target.to_tvm(), "flavour": self.flavour}
        return json.dumps(parts, sort_keys=True)


def _texts(attribute: str, programs: tvm.IRModule) -> dict[str, str]:
    """The values of an attribute, by the name of the program that has it."""
    return {
        gvar.name_hint: str(program.attrs[attribute])
        for gvar, program in programs.functions.items()
        if attribute in (program.attrs or {})
    }


def _bare(programs: Mapping[Any, tirx.PrimFunc]) -> dict[Any, tirx.PrimFunc]:
    """The programs as they are compiled, without what is for later builds."""
    return {gvar: bare(program) for gvar, program in programs.items()}
