"""The kinds of packages: which templates each has, and where it holds the files of a bundle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from relaxd.contract.bundle.manifest import FILENAME, Manifest
from relaxd.contract.options import Flavour
from relaxd.errors import DeclarationError
from relaxd.packages.interface import Interface
from relaxd.packages.languages import CPP, GO, JAVASCRIPT, RUST, Language
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


@dataclass(frozen=True)
class Layout:
    """language: of the templates; trees: their folders; library: the path of the library, in which
    LINK stands for the name by which linkers find it; header: the path of its C header, if the
    package has it; data: the folder of the manifest and the licences; weights: the path of
    the weights; systems: the operating systems whose libraries it takes.
    """

    language: Language
    trees: tuple[str, ...]
    library: str
    header: str | None
    data: str
    weights: str
    systems: tuple[str, ...]


_NATIVE = ("linux", "android", "ios")
_PREFIX = ("lib/LINK", "include/PREFIX.h", "share/PREFIX", "share/PREFIX/weights.bin", _NATIVE)
"""The paths in a prefix such as /usr/local, into which packages of several models go."""
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
}


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
    copies |= {str(PurePosixPath(layout.data, name)): name for name in (FILENAME, "LICENSES")}
    if manifest.weights_file in manifest.files:
        copies[layout.weights] = manifest.weights_file
    values = {**Interface(manifest, layout.language).values(), **_library(manifest)}
    values |= _dependency(package)
    texts = {
        str(path): fill(text, values)
        for tree in layout.trees
        for path, text in _read_templates(_TEMPLATES / tree)
    }
    return _named(texts, manifest), _named(copies, manifest)


def _named(files: dict[str, str], manifest: Manifest) -> dict[str, str]:
    """The files by paths that hold the names of the model and of its library."""
    link = _library(manifest)["link_file"]
    return {
        path.replace("PREFIX", manifest.entry).replace("LINK", link): content
        for path, content in files.items()
    }


def _read_templates(folder: Path) -> list[tuple[PurePosixPath, str]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(PurePosixPath(path.relative_to(folder)), path.read_text("utf-8")) for path in paths]


def _library(manifest: Manifest) -> dict[str, Any]:
    suffix = PurePosixPath(manifest.library).suffix
    loaded = (FILENAME, manifest.library, manifest.weights_file)
    return {
        "link_file": f"lib{manifest.entry}{suffix}",
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
