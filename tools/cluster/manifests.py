"""The manifests as Kubernetes 1.20 on one small node takes them: what differs from those that are
shipped stands here, and is printed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.kubernetes.checking import documents

Document = dict[str, Any]

OLDER = {
    "PodDisruptionBudget": "policy/v1beta1",
    "HorizontalPodAutoscaler": "autoscaling/v2beta2",
}
"""API versions of Kubernetes 1.20, by kind; the fields that the manifests use are the same."""
REQUESTS = {"cpu": "100m", "memory": "256Mi"}
"""What every container asks of the node; its limits stay."""
FOREIGN = ("keda.sh",)
"""API groups whose controllers are no part of Kubernetes."""


def adapt(document: Document) -> Document:
    """A document in the versions of Kubernetes 1.20, with requests that a small node can hold."""
    adapted = {**document, "apiVersion": OLDER.get(document["kind"], document["apiVersion"])}
    if document["kind"] != "Deployment":
        return adapted
    spec = document["spec"]
    template = spec["template"]
    pod = dict(template["spec"])
    for key in ("initContainers", "containers"):
        if key in pod:
            pod[key] = [_lighten(container) for container in pod[key]]
    return {**adapted, "spec": {**spec, "template": {**template, "spec": pod}}}


def adapted_documents() -> Iterator[Document]:
    """The shipped manifests but those of foreign API groups."""
    for _, document in documents():
        if document["apiVersion"].partition("/")[0] not in FOREIGN:
            yield adapt(document)


def _lighten(container: Mapping[str, Any]) -> Document:
    return {**container, "resources": {**container["resources"], "requests": REQUESTS}}
