"""`relaxd families`: which kernel family took each kernel, and why the others declined."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stderr, stdout
from relaxd.cli.views import plain_table
from relaxd.client import extras
from relaxd.contract.bundle.kernels import FILENAME
from relaxd.contract.bundle.manifest import FILENAME as MANIFEST
from relaxd.contract.model_files import is_onnx
from relaxd.contract.model_folder import CONFIG
from relaxd.contract.request import CompileRequest
from relaxd.errors import BundleError, DeclarationError

Source = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE|MODEL",
        help="A bundle, or a model's file or folder, which is compiled up to its loops.",
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Option("--target", metavar="TARGET", help="What to compile a model for."),
]


def families_command(
    source: Source,
    dim: declare.Dims = None,
    input: declare.Inputs = None,
    const: declare.Consts = None,
    shape: declare.Shapes = None,
    target: Target = "native",
    json: Json = False,
) -> None:
    """Show which family compiled each kernel of BUNDLE|MODEL, and why the others declined.

    Example: [bold]relaxd families m.onnx --dim batch=1:64 --target x86-64-v3[/]
    """
    request = declare.read_request(
        dims=dim, inputs=input, consts=const, shapes=shape, targets=[target]
    )
    report = _of_bundle(source) if _is_bundle(source) else _of_model(source, request, target)
    if json:
        print_json(report)
    else:
        stdout().print(_render(report["kernels"]))


def _is_bundle(source: Path) -> bool:
    if not source.exists():
        raise DeclarationError(
            f"there is no file {source}", field="source", hint="give the path of a bundle or model"
        )
    if source.is_dir():
        names = {path.name for path in source.iterdir()}
    elif tarfile.is_tarfile(source):
        with tarfile.open(source) as archive:
            names = {Path(name).name for name in archive.getnames()}
    else:
        return False
    return MANIFEST in names or not (CONFIG in names or any(map(is_onnx, names)))


def _of_bundle(source: Path) -> dict[str, Any]:
    from relaxd.loader.bundles.bundle import open_bundle
    from relaxd.loader.report import kernels_of

    with open_bundle(source) as bundle:
        kernels = kernels_of(bundle)
        if not kernels and FILENAME not in bundle.manifest.files:
            raise BundleError(
                f"{source} does not name the families of its kernels",
                hint="compile the model again, or give the model instead of the bundle",
            )
        return {"target": bundle.manifest.target.get("name"), "kernels": kernels}


def _of_model(source: Path, request: CompileRequest, target: str) -> dict[str, Any]:
    api = extras.load("compiler.api", extra="compiler")
    with stderr().status("compiling up to the loops"):
        report: dict[str, Any] = api.families_request(source, request, target)
    return report


def _render(kernels: list[dict[str, Any]]) -> Group:
    """All kernels, then the reasons of each group of kernels that the same families declined."""
    table = plain_table("KERNEL", "FAMILY", "TILE")
    for kernel in kernels:
        table.add_row(*(escape(kernel[field]) for field in ("name", "family", "tile")))
    return Group(table, *_declines(kernels))


def _declines(kernels: list[dict[str, Any]]) -> Iterator[RenderableType]:
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for kernel in kernels:
        groups.setdefault(tuple(kernel["declined"].items()), []).append(kernel["name"])
    for declined, names in groups.items():
        if declined:
            yield Text(f"\n{', '.join(names)}", style="bold")
            yield Text("declined by")
            yield Padding(_reasons(declined), (0, 0, 0, 2))


def _reasons(declined: tuple[tuple[str, str], ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for family, reason in declined:
        table.add_row(escape(family), escape(reason))
    return table
