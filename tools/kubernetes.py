"""Checks the Kubernetes manifests against the API's own schemas; those of KEDA it only parses."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

FOLDER = Path(__file__).parent.parent / "docker" / "kubernetes"
VERSIONS = ("1.30", "1.37")
FOREIGN = ("keda.sh/", "kustomize.config.k8s.io/")


def documents(folder: Path = FOLDER) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every document that the kustomization lists, and its file's name."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    for name in listed:
        for document in yaml.safe_load_all((folder / name).read_text()):
            yield name, document


def mistakes(folder: Path = FOLDER) -> Iterator[str]:
    """List what the schemas refuse, a line each."""
    for name, document in documents(folder):
        if document["apiVersion"].startswith(FOREIGN):
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                path = ".".join(map(str, error.path))
                yield f"{name}: {document['kind']}: {path}: {error.message} (Kubernetes {version})"


if __name__ == "__main__":
    wrong = list(mistakes())
    print("\n".join(wrong) or "the Kubernetes manifests fit their schemas")
    sys.exit(bool(wrong))
