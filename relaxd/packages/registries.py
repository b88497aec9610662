"""Bundles in the layouts of registries of models: MLflow and KitOps."""

import json as json_format
import platform
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.packages.kinds import Kind

BUNDLE = "bundle"
"""The folder that holds the bundle as it is."""


def _mlflow(manifest: Manifest, package: str | None) -> dict[str, str]:
    """https://mlflow.org/docs/latest/ml/model/#storage-format"""
    version = platform.python_version()
    flavor = {
        "loader_module": "relaxd.loader.pyfunc",
        "data": BUNDLE,
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
            "path": BUNDLE,
            "framework": "relaxd",
            "description": description,
            "parameters": parameters,
        },
    }
    return {"Kitfile": _to_yaml(document)}


REGISTRIES: Mapping[Kind, Callable[[Manifest, str | None], dict[str, str]]] = {
    Kind.MLFLOW: _mlflow,
    Kind.KITOPS: _kitops,
}
"""The texts beside a bundle, by the manifest and the URL of relaxd's wheel."""


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
