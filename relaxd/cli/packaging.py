"""`relaxd package`: a bundle in the layout of MLflow or KitOps."""

import json as json_format
import platform
import shutil
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.errors import DeclarationError
from relaxd.loader.bundles.bundle import open_bundle

_BUNDLE = "bundle"


class Layout(StrEnum):
    """Whose layout."""

    MLFLOW = "mlflow"
    KITOPS = "kitops"


def package_command(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.", show_default=False)],
    layout: Annotated[
        Layout, typer.Option("--as", help="The layout to write.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="A new folder.")
    ] = Path("package"),
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            metavar="URL",
            help="For mlflow: relaxd's wheel, as requirements.txt names it.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write a folder with BUNDLE that MLflow loads, or that `kit pack` takes.

    Example: [bold]relaxd package out --as mlflow -o model[/]
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
    output.mkdir(parents=True, exist_ok=True)
    shutil.copytree(bundle, output / _BUNDLE)
    files = _FILES[layout](manifest, package)
    for name, text in files.items():
        (output / name).write_text(text, encoding="utf-8")
    if json:
        print_json({"output": str(output), "layout": layout, "files": sorted(files)})
    else:
        stdout().print(f"{output}: {', '.join(sorted(files))} and {_BUNDLE}/", markup=False)


def _mlflow(manifest: Manifest, package: str | None) -> dict[str, str]:
    """https://mlflow.org/docs/latest/ml/model/#storage-format"""
    version = platform.python_version()
    flavor = {
        "loader_module": "relaxd.loader.pyfunc",
        "data": _BUNDLE,
        "python_version": version,
        "env": {"virtualenv": "python_env.yaml"},
    }
    document: dict[str, Any] = {
        "flavors": {"python_function": flavor},
        "model_uuid": uuid.uuid4().hex,
        "utc_time_created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
    }
    specs = (*manifest.inputs, *manifest.outputs)
    if not any(spec.dtype in STORAGE or spec.dtype == "bfloat16" for spec in specs):
        document["signature"] = {
            "inputs": json_format.dumps([_tensor(spec) for spec in manifest.inputs]),
            "outputs": json_format.dumps([_tensor(spec) for spec in manifest.outputs]),
        }
    # No index is named: nobody holds the name `relaxd` there.
    wheel = f"relaxd @ {package}" if package else "# add: relaxd @ URL-of-relaxd's-wheel"
    env = {"python": version, "dependencies": ["-r requirements.txt"]}
    return {
        "MLmodel": _to_yaml(document),
        "python_env.yaml": _to_yaml(env),
        "requirements.txt": f"{wheel}\n",
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    """A tensor of MLflow's signatures; -1 is any size."""
    shape = [-1 if axis.size is None else axis.size for axis in spec.shape]
    tensor = {"dtype": spec.dtype, "shape": shape}
    return {"name": spec.name, "type": "tensor", "tensor-spec": tensor}


def _kitops(manifest: Manifest, package: str | None) -> dict[str, str]:
    """https://kitops.org/docs/kitfile/format/"""
    parameters = {
        "target": manifest.target.get("name", ""),
        "inputs": {spec.name: spec.text for spec in manifest.inputs},
        "outputs": {spec.name: spec.text for spec in manifest.outputs},
        "dims": {dim.name: dim.describe() for dim in manifest.dims},
        "action_key": manifest.action_key.get("digest", ""),
    }
    description = f"{manifest.name} compiled by relaxd for {parameters['target']}"
    document = {
        "manifestVersion": "1.0.0",
        "package": {"name": manifest.name, "description": description},
        "model": {
            "name": manifest.name,
            "path": _BUNDLE,
            "framework": "relaxd",
            "description": description,
            "parameters": parameters,
        },
    }
    return {"Kitfile": _to_yaml(document)}


_FILES: Mapping[Layout, Callable[[Manifest, str | None], dict[str, str]]] = {
    Layout.MLFLOW: _mlflow,
    Layout.KITOPS: _kitops,
}


def _to_yaml(document: Mapping[str, Any], indent: str = "") -> str:
    """YAML of nested mappings; scalars, lists and odd keys are written as JSON, which is YAML."""
    lines = []
    for key, value in document.items():
        name = key if key.isidentifier() else json_format.dumps(key)
        if isinstance(value, Mapping) and value:
            lines.append(f"{indent}{name}:\n{_to_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{name}: {json_format.dumps(value)}\n")
    return "".join(lines)
