"""Links objects into a shared library or a static archive, with no system compiler."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm

from compiler.codegen.cubin import Pack
from compiler.codegen.side_by_side import each
from compiler.errors import LinkError
from compiler.link import dll, sources
from compiler.runtimes import linux
from compiler.targets import ObjectFormat, Runtime, Target
from compiler.toolchain import zig

_MACHO = ("-s", "-Wl,-undefined,dynamic_lookup", "-Wl,-install_name,@rpath/model.dylib")

_COMPILED = ("llvm", "static_library")
"""What TVM calls modules of machine code, and objects that were written earlier."""


def link_library(
    executable: Any,
    folder: Path,
    target: Target,
    pack: Pack | None = None,
    further: Sequence[Path] = (),
) -> Path:
    """Link TVM's `executable` into a library in `folder` and return its path; raises LinkError.

    pack: embeds what the executable imports, in place of TVM's own way; further: objects that its
    kernels call.
    """
    output = folder / target.platform.library
    with tempfile.TemporaryDirectory() as workspace:
        modules = executable.mod._collect_dso_modules()
        if modules and all(module.kind in _COMPILED for module in modules):
            objects = _objects(executable.mod, modules, Path(workspace), target, pack)
            link_objects([*objects, *further], output, target)
        else:
            _link_sources(executable, output, target, workspace)
    return output


def _objects(
    module: Any, programs: Sequence[Any], folder: Path, target: Target, pack: Pack | None
) -> list[Path]:
    """The machine code of each program of TVM's module, and one object with what else is in it."""
    files = [folder / f"lib{index}.o" for index in range(len(programs))]
    each(lambda item: item[0].write_to_file(str(item[1])), zip(programs, files, strict=True))
    first = programs[0] if programs[0].kind == "llvm" else _without_code(target)
    system, prefix, machine = (
        first.get_function(name)()
        for name in (
            "__tvm_is_system_module",
            "__tvm_get_system_lib_prefix",
            "_get_target_string",
        )
    )
    if pack is not None:
        return [*files, Path(pack(module, system, prefix or "", str(folder)))]
    rest = folder / f"{prefix or ''}devc.o"
    embed = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
    embed(module, system, machine, prefix or "").write_to_file(str(rest))
    return [*files, rest]


def _without_code(target: Target) -> Any:
    """A module of LLVM's that holds what TVM asks the first module for."""
    create = tvm.get_global_func("codegen.LLVMModuleCreate")
    return create(json.dumps(target.to_tvm()), "empty")


def _link_sources(executable: Any, output: Path, target: Target, workspace: str) -> None:
    """A model without a single kernel comes as C sources; `options` name their headers."""

    def combine(library: str, objects: list[str], options: Sequence[str] = ()) -> None:
        link_objects([Path(item) for item in objects], Path(library), target, options)

    # TVM asks for the objects' format and platform through these attributes.
    combine.object_format = "o"  # type: ignore[attr-defined]
    combine.get_target_triple = lambda: target.triple  # type: ignore[attr-defined]
    executable.export_library(str(output), fcompile=combine, workspace_dir=workspace)


def link_objects(
    objects: Sequence[Path], output: Path, target: Target, options: Sequence[str] = ()
) -> None:
    """Link the objects into one library; raises LinkError.

    Nothing in the library depends on where or when it was linked.
    """
    if target.platform.runtime is Runtime.LINKED:
        if any(item.suffix != ".o" for item in objects):
            hint = "build it for a target that takes a shared library"
            message = "a model without kernels makes no static archive"
            raise LinkError(message, reason="no_kernels", hint=hint)
        zig.archive(objects, output)
        return
    if target.platform.object_format is ObjectFormat.COFF:
        dll.link_with_runtime(objects, output, target, options)
        return
    with tempfile.TemporaryDirectory() as aside:
        if target.platform.object_format is ObjectFormat.ELF:
            linux.link(sources.compile_each(objects, Path(aside), target, options), output, target)
            return
        # zig writes symbol files beside what it links.
        linked = Path(aside) / output.name
        zig.compile_with_zig(
            *("-shared", "-o", str(linked), *_MACHO, *options),
            *map(str, objects),
            triple=target.platform.linker,
        )
        shutil.copyfile(linked, output)
