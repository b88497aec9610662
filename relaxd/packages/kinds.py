"""The kinds of packages: which templates each has, and where it holds the files of a bundle."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from relaxd.contract.bundle.manifest import FILENAME, Manifest
from relaxd.contract.options import Flavour
from relaxd.errors import DeclarationError
from relaxd.packages.interface import Interface
from relaxd.packages.languages import CPP, GO, RUST, Language
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


@dataclass(frozen=True)
class Layout:
    """language: of the templates; trees: their folders; library, header, data: where the package
    holds the library, its C header, and the weights with the manifest and the licences.
    """

    language: Language
    trees: tuple[str, ...]
    library: str
    header: str
    data: str


_PREFIX = ("lib", "include", "share/PREFIX")
"""The folders of a prefix such as /usr/local, into which packages of several models go."""
_LAYOUTS: Mapping[Kind, Layout] = {
    Kind.CMAKE: Layout(CPP, ("cpp", "cmake"), *_PREFIX),
    Kind.PKG_CONFIG: Layout(CPP, ("cpp", "pkg-config"), *_PREFIX),
    Kind.CARGO: Layout(RUST, ("cargo",), "lib", "include", ""),
    Kind.GO: Layout(GO, ("go",), "lib", "", ""),
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
    values = {**Interface(manifest, layout.language).values(), **_library(manifest)}
    texts = {
        str(path): fill(text, values)
        for tree in layout.trees
        for path, text in _read_templates(_TEMPLATES / tree)
    }
    data = [name for name in (manifest.weights_file, "LICENSES") if name in manifest.files]
    copies = {
        str(PurePosixPath(layout.library, values["link_file"])): manifest.library,
        str(PurePosixPath(layout.header, "PREFIX.h")): "model.h",
        **{str(PurePosixPath(layout.data, name)): name for name in (FILENAME, *data)},
    }
    return _named(texts, manifest), _named(copies, manifest)


def _named(files: dict[str, str], manifest: Manifest) -> dict[str, str]:
    return {path.replace("PREFIX", manifest.entry): content for path, content in files.items()}


def _read_templates(folder: Path) -> list[tuple[PurePosixPath, str]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(PurePosixPath(path.relative_to(folder)), path.read_text("utf-8")) for path in paths]


def _library(manifest: Manifest) -> dict[str, Any]:
    suffix = PurePosixPath(manifest.library).suffix
    return {
        "link_file": f"lib{manifest.entry}{suffix}",
        "shared": [{}] if suffix == ".so" else [],
        "archived": [{}] if suffix == ".a" else [],
    }


def _check(kind: Kind, manifest: Manifest) -> None:
    if manifest.flavour != Flavour.STANDALONE:
        raise DeclarationError(
            f"a package for {kind} holds a library that needs no runtime; this one is for the "
            f"backend {manifest.flavour}",
            field="bundle",
            hint="compile with --flavour standalone, for a target without a GPU",
        )
    if PurePosixPath(manifest.library).suffix not in (".so", ".a"):
        raise DeclarationError(
            f"a package for {kind} holds a library for Linux or Android, or an archive, not "
            f"{manifest.library}",
            field="bundle",
            hint="relaxd targets lists the targets",
        )
