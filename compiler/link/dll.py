"""Links objects into a DLL that imports from TVM's function interface and the universal C runtime,
and from nothing else.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compiler import runtimes
from compiler.link import sources
from compiler.runtimes import windows
from compiler.runtimes.pins import IMPORT_LIBRARY
from compiler.targets import Target
from compiler.toolchain import zig

_FLAGS = ("-noentry", "-brepro", "-opt:ref")
"""No code of a model's runs when it is loaded; and equal objects give equal DLLs."""


def link_with_runtime(
    parts: Sequence[Path], output: Path, target: Target, options: Sequence[str]
) -> None:
    """Link objects, and C sources that the options are for, against the fetched runtime; raises
    LinkError.
    """
    interface = runtimes.find(target.platform) / IMPORT_LIBRARY
    with tempfile.TemporaryDirectory() as aside:
        objects = sources.compile_each(parts, Path(aside), target, options)
        link([*objects, interface], output, target)


def link(
    objects: Sequence[Path], output: Path, target: Target, exports: Sequence[str] = ()
) -> None:
    """Link objects and import libraries; raises LinkError, also where a symbol is undefined.

    exports: names beside those that the objects export themselves.
    """
    library = windows.library(target)
    with tempfile.TemporaryDirectory() as aside:
        # The linker writes an import library beside what it links.
        linked = Path(aside) / output.name
        flags = (*_FLAGS, f"-out:{linked}", *(f"-export:{name}" for name in exports))
        zig.link_dll(*flags, *map(str, (*objects, library)))
        shutil.copyfile(linked, output)
