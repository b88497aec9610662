"""Checks the Kubernetes manifests: against the API's own schemas and those of KEDA, whose unknown
fields are refused, and against the images that they start.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tools.kubernetes.foreign import TYPES, foreign_mistakes, read_embedded
from tools.kubernetes.images import ROOT, image_mistakes
from tools.kubernetes.pools import COMMAND, read_description, render

FOLDER = ROOT / "docker" / "kubernetes"
VERSIONS = ("1.30", "1.37")

Document = Mapping[str, Any]


def documents(folder: Path = FOLDER) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every document that the kustomization lists, and its file's name."""
    listed = _kustomization(folder)["resources"]
    for name in listed:
        for document in yaml.safe_load_all((folder / name).read_text()):
            yield name, document


def mistakes(folder: Path = FOLDER) -> Iterator[str]:
    """List what the schemas refuse and what the images lack, a line each."""
    if wrong := list(schema_mistakes(_kustomization(folder))):
        yield from (f"kustomization.yaml: {mistake}" for mistake in wrong)
        return
    if (folder / "pools.yaml").read_text() != render(read_description(folder / "pools.toml")):
        yield f"pools.yaml: it is not what pools.toml describes; run `{COMMAND}`"
    known = list(documents(folder))
    shared = _shared_values(document for _, document in known)
    for name, document in known:
        for mistake in _mistakes_of(document, shared):
            yield f"{name}: {document['kind']}: {mistake}"


def _mistakes_of(document: Document, shared: Mapping[str, str]) -> Iterator[str]:
    """Those of the schema; of a document that fits it, those of the pods that it describes."""
    if wrong := list(schema_mistakes(document)):
        yield from wrong
        return
    for part in read_embedded(document):
        yield from _mistakes_of(part, shared)
    if "template" in document.get("spec", {}):
        yield from image_mistakes(document["spec"]["template"]["spec"], shared)


def schema_mistakes(document: Document) -> Iterator[str]:
    """List what the document's schema refuses."""
    if document["kind"] in TYPES:
        yield from foreign_mistakes(document)
        return
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(map(str, error.path))
            yield f"{path}: {error.message} (Kubernetes {version})"


def _kustomization(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return document


def _shared_values(known: Iterator[Document]) -> dict[str, str]:
    maps = [document["data"] for document in known if document["kind"] == "ConfigMap"]
    return {name: value for each in maps for name, value in each.items()}
