"""Links objects into a shared library or a static archive, with no system compiler."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler import runtimes
from compiler.codegen.cubin import Pack
from compiler.errors import LinkError
from compiler.runtimes.pins import IMPORT_LIBRARY
from compiler.targets import ObjectFormat, Runtime, Target
from compiler.toolchain import zig

_STRIP = {
    ObjectFormat.ELF: ("-Wl,--build-id=none", "-Wl,-S"),
    ObjectFormat.MACHO: (
        "-s",
        "-Wl,-undefined,dynamic_lookup",
        "-Wl,-install_name,@rpath/model.dylib",
    ),
    ObjectFormat.COFF: ("-s",),
}


def link_library(executable: Any, folder: Path, target: Target, pack: Pack | None = None) -> Path:
    """Link TVM's `executable` into a library in `folder` and return its path; raises LinkError.

    pack: embeds what the executable imports, in place of TVM's own way.
    """
    output = folder / target.platform.library

    def combine(library: str, objects: list[str], options: Sequence[str] = ()) -> None:
        # A model without a single kernel comes as C sources; `options` then name their headers.
        link_objects([Path(item) for item in objects], Path(library), target, options)

    # TVM asks for the objects' format and platform through these attributes.
    combine.object_format = "o"  # type: ignore[attr-defined]
    combine.get_target_triple = lambda: target.triple  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as workspace:
        executable.export_library(
            str(output), fcompile=combine, fpack_imports=pack, workspace_dir=workspace
        )
    return output


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
    strip = _STRIP[target.platform.object_format]
    with tempfile.TemporaryDirectory() as aside:
        # zig writes import libraries and symbol files beside what it links.
        linked = Path(aside) / output.name
        zig.compile_with_zig(
            *("-shared", "-o", str(linked), *strip, *options),
            *map(str, objects),
            *_imports(target),
            triple=target.platform.linker,
        )
        shutil.copyfile(linked, output)


def _imports(target: Target) -> list[str]:
    if target.platform.object_format is not ObjectFormat.COFF:
        return []
    return [str(runtimes.find(target.platform) / IMPORT_LIBRARY)]
