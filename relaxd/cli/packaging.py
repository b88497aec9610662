"""`relaxd package`: a bundle as what a registry of models or an ecosystem installs."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.contract.bundle.manifest import Manifest
from relaxd.errors import DeclarationError
from relaxd.loader.bundles.bundle import open_bundle
from relaxd.packages.kinds import Kind, package_of
from relaxd.packages.registries import BUNDLE, REGISTRIES


def package_command(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.", show_default=False)],
    kind: Annotated[Kind, typer.Option("--as", help="Whose package.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="A new folder.")
    ] = Path("package"),
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            metavar="URL",
            help="Where relaxd is: its wheel for mlflow, its npm package for npm.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a folder that MLflow loads, `kit pack` takes, or a build in another language uses.

    Example: [bold]relaxd package out --as cmake -o package[/]
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DeclarationError(
            f"{output} already holds other files", field="output", hint="choose another with -o"
        )
    if not bundle.is_dir():
        raise DeclarationError(
            f"{bundle} is not a folder", field="bundle", hint="unpack the tar, or pull the bundle"
        )
    with open_bundle(bundle) as opened:
        opened.verify()
        manifest = opened.manifest
    files = _write(kind, manifest, bundle, output, package)
    if json:
        print_json({"output": str(output), "layout": kind, "files": files})
    else:
        also = f" and {BUNDLE}/" if kind in REGISTRIES else ""
        stdout().print(f"{output}: {', '.join(files)}{also}", markup=False, soft_wrap=True)


def _write(
    kind: Kind, manifest: Manifest, bundle: Path, output: Path, package: str | None
) -> list[str]:
    """The paths of the written files, in order; those of a bundle as a whole are not among them."""
    if kind in REGISTRIES:
        texts, copies = REGISTRIES[kind](manifest, package), dict[str, str]()
        shutil.copytree(bundle, output / BUNDLE)
    else:
        texts, copies = package_of(kind, manifest, package)
    for path in (output / name for name in (*texts, *copies)):
        path.parent.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (output / name).write_text(text, encoding="utf-8")
    for name, source in copies.items():
        shutil.copyfile(bundle / source, output / name)
    return sorted((*texts, *copies))
