"""The manifests as the small cluster of `make cluster` takes them: that nothing differs from those
that are shipped but what is said.
"""

from typing import Any

from tools.cluster.manifests import FOREIGN, OLDER, REQUESTS, adapted_documents
from tools.cluster.source import name_sources
from tools.kubernetes.checking import documents

SHIPPED = [document for _, document in documents()]
ADAPTED = list(adapted_documents())


def list_differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any]]:
    """The paths at which two documents differ, and what the new one has there."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            difference
            for key in sorted(old.keys() | new.keys())
            for difference in list_differences(old.get(key), new.get(key), f"{path}.{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            difference
            for number, pair in enumerate(zip(old, new, strict=True))
            for difference in list_differences(*pair, f"{path}[{number}]")
        ]
    return [] if old == new else [(path, new)]


def test_only_foreign_documents_are_left_out() -> None:
    left = [each for each in SHIPPED if each["apiVersion"].split("/")[0] not in FOREIGN]
    assert [(each["kind"], each["metadata"]) for each in ADAPTED] == [
        (each["kind"], each["metadata"]) for each in left
    ]
    assert {each["kind"] for each in SHIPPED} - {each["kind"] for each in ADAPTED} == {
        "ScaledObject",
        "TriggerAuthentication",
    }


def test_only_versions_and_requests_differ() -> None:
    shipped = [each for each in SHIPPED if each["apiVersion"].split("/")[0] not in FOREIGN]
    for old, new in zip(shipped, ADAPTED, strict=True):
        differences = dict(list_differences(old, new))
        if old["kind"] in OLDER:
            assert differences == {".apiVersion": OLDER[old["kind"]]}
        elif old["kind"] == "Deployment":
            assert {
                path.rpartition(".requests.")[2]: value for path, value in differences.items()
            } == (REQUESTS)
            assert all(".resources.requests." in path for path in differences)
        else:
            assert differences == {}


def test_every_container_asks_for_little_and_keeps_its_limits() -> None:
    containers = [
        container
        for document in ADAPTED
        if document["kind"] == "Deployment"
        for key in ("initContainers", "containers")
        for container in document["spec"]["template"]["spec"].get(key, ())
    ]
    assert len(containers) == 3
    for container in containers:
        assert container["resources"]["requests"] == REQUESTS
        assert container["resources"]["limits"]["memory"]


def test_apts_lists_of_packages_become_lists_of_sources() -> None:
    old = "# deb http://a.example stable main\ndeb [arch=amd64] http://b.example stable main\n"
    assert name_sources(old) == (
        "# deb http://a.example stable main\ndeb-src [arch=amd64] http://b.example stable main\n"
    )
    new = "Types: deb deb-src\nURIs: http://deb.example/debian\nSuites: bookworm\n"
    assert name_sources(new) == (
        "Types: deb-src\nURIs: http://deb.example/debian\nSuites: bookworm\n"
    )
