"""The kinds of packages: which templates each has, and where it holds the files of a bundle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from relaxd.contract.bundle.manifest import FILENAME, Manifest
from relaxd.contract.options import Flavour
from relaxd.errors import DeclarationError
from relaxd.packages.interface import Interface
from relaxd.packages.languages import CPP, CSHARP, GO, JAVASCRIPT, RUST, C, Language
from relaxd.packages.template import fill

_TEMPLATES = Path(__file__).parent / "templates"


class Kind(StrEnum):
    """Whose package."""

    MLFLOW = "mlflow"
    KITOPS = "kitops"
    CMAKE = "cmake"
    PKG_CONFIG = "pkg-config"
    CARGO = "cargo"
    GO = "go"
    NPM = "npm"
    ARDUINO = "arduino"
    CMSIS = "cmsis"
    ZEPHYR = "zephyr"
    SWIFT = "swift"
    NUGET = "nuget"
    AAR = "aar"


@dataclass(frozen=True)
class Layout:
    """language: of the templates; trees: their folders; library: the path of the library, in which
    LINK stands for the name by which linkers find it; header: the path of its C header, if the
    package has it; data: the folder of the manifest and the licences; weights: the path of
    the weights; systems: the operating systems whose libraries it takes; folders: what stands for
    the folders of headers and of the example in the paths of templates; copies: other files of the
    bundle by their paths.
    """

    language: Language
    trees: tuple[str, ...]
    library: str
    header: str | None
    data: str
    weights: str
    systems: tuple[str, ...]
    folders: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)


_NATIVE = ("linux", "android", "ios")
_PREFIX = ("lib/LINK", "include/PREFIX.h", "share/PREFIX", "share/PREFIX/weights.bin", _NATIVE)
"""The paths in a prefix such as /usr/local, into which packages of several models go."""
_BARE = ("none",)
_LAYOUTS: Mapping[Kind, Layout] = {
    Kind.CMAKE: Layout(CPP, ("cpp", "cmake"), *_PREFIX),
    Kind.PKG_CONFIG: Layout(CPP, ("cpp", "pkg-config"), *_PREFIX),
    Kind.CARGO: Layout(
        RUST, ("cargo",), "lib/LINK", "include/PREFIX.h", "", "weights.bin", _NATIVE
    ),
    Kind.GO: Layout(GO, ("go",), "lib/LINK", "PREFIX.h", "", "weights.bin", _NATIVE),
    Kind.NPM: Layout(
        *(JAVASCRIPT, ("npm",), "bundle/model.wasm", None, "bundle", "bundle/weights.bin"),
        systems=("wasm",),
    ),
    Kind.ARDUINO: Layout(
        *(C, ("mcu", "arduino"), "src/PROCESSOR/LINK", "src/PREFIX.h", "extras"),
        *("extras/weights.bin", _BARE),
        folders={"INCLUDE": "src", "EXAMPLE": "extras/example"},
    ),
    Kind.CMSIS: Layout(
        *(C, ("mcu", "cmsis"), "lib/LINK", "include/PREFIX.h", "", "weights.bin", _BARE),
        folders={"INCLUDE": "include", "EXAMPLE": "examples"},
    ),
    Kind.ZEPHYR: Layout(
        *(C, ("mcu", "zephyr"), "lib/LINK", "include/PREFIX.h", "", "weights.bin", _BARE),
        folders={"INCLUDE": "include", "EXAMPLE": "samples/run/src"},
    ),
    Kind.NUGET: Layout(
        *(CSHARP, ("nuget",), "runtimes/RUNTIME/native/LINK", None, ""),
        *("contentFiles/any/any/PREFIX.weights.bin", ("linux", "win32")),
    ),
    Kind.AAR: Layout(
        *(C, ("aar",), "prefab/modules/PREFIX/libs/android.arm64-v8a/LINK"),
        *("prefab/modules/PREFIX/include/model.h", "", "assets/PREFIX.weights.bin"),
        systems=("android",),
        copies={"extras/Model.kt": "Model.kt", "extras/model_jni.c": "model_jni.c"},
    ),
    Kind.SWIFT: Layout(
        *(C, ("swift",), "PREFIX.xcframework/ios-arm64/LINK"),
        *("PREFIX.xcframework/ios-arm64/Headers/model.h", "", "Sources/MODULE/weights.bin"),
        systems=("ios",),
        copies={
            "PREFIX.xcframework/Info.plist": "Info.plist",
            "PREFIX.xcframework/ios-arm64/Headers/module.modulemap": "module.modulemap",
            "Sources/MODULE/Model.swift": "Model.swift",
        },
    ),
}


@dataclass(frozen=True)
class _Processor:
    """The words for a micro-controller: Arduino's folder of its libraries, CMSIS-Pack's core and
    floating-point unit, Zephyr's symbols; empty where there is none.
    """

    folder: str
    core: str
    fpu: str
    kconfig: str


_RV32 = "RISCV_ISA_RV32I && RISCV_ISA_EXT_M && RISCV_ISA_EXT_C"
_PROCESSORS = {
    "cortex-m4": _Processor("cortex-m4/fpv4-sp-d16-hard", "Cortex-M4", "SP_FPU", "CPU_CORTEX_M4"),
    "cortex-m7": _Processor("cortex-m7/fpv5-d16-hard", "Cortex-M7", "DP_FPU", "CPU_CORTEX_M7"),
    "cortex-m55": _Processor("cortex-m55/auto-hard", "Cortex-M55", "DP_FPU", "CPU_CORTEX_M55"),
    "rv32imc": _Processor("", "", "", f"{_RV32} && !FLOAT_HARD"),
    "rv32imafc": _Processor(
        "", "", "", f"{_RV32} && RISCV_ISA_EXT_A && RISCV_ISA_EXT_F && FLOAT_HARD"
    ),
}
_NONE = _Processor("", "", "", "")
_NEEDED = {Kind.ARDUINO: "folder", Kind.CMSIS: "core", Kind.ZEPHYR: "kconfig"}
"""The word for a processor without which there is no package."""
_PAGE = 1 << 10
_ARENA = 64 << 10
"""Bytes of working memory that examples set aside where dims have no greatest size."""


def package_of(
    kind: Kind, manifest: Manifest, package: str | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of a package by their paths in it, and by theirs the names of the bundle's files
    that it copies; raises DeclarationError for a bundle that the kind has no place for.

    package: where relaxd's own package is, for kinds that depend on it.
    """
    layout = _LAYOUTS[kind]
    _check(kind, manifest)
    copies = {layout.library: manifest.library}
    copies |= {} if layout.header is None else {layout.header: "model.h"}
    copies |= layout.copies
    copies |= {str(PurePosixPath(layout.data, name)): name for name in (FILENAME, "LICENSES")}
    if manifest.weights_file in manifest.files:
        copies[layout.weights] = manifest.weights_file
    values = {**Interface(manifest, layout.language).values(), **_library(manifest)}
    values |= {**_dependency(package), **_machine(manifest)}
    values["module_name"] = values["module"][:1].upper() + values["module"][1:]
    texts = {
        str(path): fill(text, values)
        for tree in layout.trees
        for path, text in _read_templates(_TEMPLATES / tree)
    }
    words = {
        **layout.folders,
        "PREFIX": manifest.entry,
        "LINK": _library(manifest)["link_file"],
        "MODULE": values["module_name"],
        "PROCESSOR": _processor(manifest).folder,
        "RUNTIME": _runtime(manifest),
    }
    return _named(texts, words), _named(copies, words)


def _named(files: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    """The files by paths in which names stand for the words."""
    named = {}
    for path, content in files.items():
        for word, name in words.items():
            path = path.replace(word, name)
        named[path] = content
    return named


def _arena(manifest: Manifest) -> int:
    """Bytes of working memory that examples set aside: those at the greatest dims, if known."""
    planned = manifest.memory.get("planned_bytes")
    if manifest.memory.get("dims") != "max" or not isinstance(planned, int):
        return _ARENA
    return (planned // _PAGE + 1) * _PAGE


def _runtime(manifest: Manifest) -> str:
    """The name that .NET has for a system and a processor."""
    system = {"win32": "win"}.get(manifest.load.os, manifest.load.os)
    processors = {"x86_64": "x64", "aarch64": "arm64", "armv7": "arm", "i386": "x86"}
    return f"{system}-{processors.get(manifest.load.arch, manifest.load.arch)}"


def _processor(manifest: Manifest) -> _Processor:
    return _PROCESSORS.get(str(manifest.target.get("name", "")), _NONE)


def _machine(manifest: Manifest) -> dict[str, Any]:
    """The values of packages for phones and micro-controllers."""
    processor, weights = _processor(manifest), manifest.files.get(manifest.weights_file)
    return {
        "core": processor.core,
        "fpu": processor.fpu,
        "kconfig": processor.kconfig,
        "weight_bytes": 0 if weights is None else weights.size,
        "arena": _arena(manifest),
    }


def _read_templates(folder: Path) -> list[tuple[PurePosixPath, str]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(PurePosixPath(path.relative_to(folder)), path.read_text("utf-8")) for path in paths]


def _library(manifest: Manifest) -> dict[str, Any]:
    suffix = PurePosixPath(manifest.library).suffix
    loaded = (FILENAME, manifest.library, manifest.weights_file)
    return {
        "link_file": f"{'' if suffix == '.dll' else 'lib'}{manifest.entry}{suffix}",
        "shared": _only_if(suffix == ".so"),
        "archived": _only_if(suffix == ".a"),
        "cpu": _only_if(manifest.load.device == "cpu"),
        "gpu": _only_if(manifest.load.device != "cpu"),
        "files": [{"file": name} for name in loaded if name in (FILENAME, *manifest.files)],
    }


def _dependency(package: str | None) -> dict[str, Any]:
    return {
        "package": [] if package is None else [{"url": json.dumps(package)}],
        "no_package": _only_if(package is None),
    }


def _only_if(condition: bool) -> list[dict[str, Any]]:
    """The rows of a block that a template has under a condition."""
    return [{}] if condition else []


def _check(kind: Kind, manifest: Manifest) -> None:
    if manifest.flavour != Flavour.STANDALONE:
        raise DeclarationError(
            f"a package for {kind} holds a library that needs no runtime; this one is for the "
            f"backend {manifest.flavour}",
            field="bundle",
            hint="compile with the backend standalone, for a target without a GPU",
        )
    systems = _LAYOUTS[kind].systems
    if manifest.load.os not in systems:
        raise DeclarationError(
            f"a package for {kind} holds a library for {', '.join(systems)}, not for "
            f"{manifest.load.os}",
            field="bundle",
            hint="compile for another target: relaxd targets lists them",
        )
    if kind in _NEEDED and not getattr(_processor(manifest), _NEEDED[kind]):
        known = [name for name, words in _PROCESSORS.items() if getattr(words, _NEEDED[kind])]
        raise DeclarationError(
            f"{kind} has no word for the processors of {manifest.target.get('name')}",
            field="bundle",
            hint=f"compile for {', '.join(known)}, or link model.a as it is",
        )
