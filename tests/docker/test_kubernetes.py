"""Promises of the Kubernetes manifests, and that they fit the service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from service.db.engine import Database
from service.db.upgrade import upgrade
from service.settings import Settings
from tests.service.db.filling import QUEUED, RUNNING, fill
from tools.kubernetes.checking import FOLDER, documents, mistakes

MISTAKES = [document for _, document in documents()]


def name_values(kind: str, name: str) -> dict[str, Any]:
    (document,) = (
        document
        for document in MISTAKES
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    )
    return document


def deployments() -> list[dict[str, Any]]:
    return [document for document in MISTAKES if document["kind"] == "Deployment"]


def containers() -> Iterator[dict[str, Any]]:
    for deployment in deployments():
        pod = deployment["spec"]["template"]["spec"]
        yield from (*pod.get("initContainers", ()), *pod["containers"])


def test_every_manifest_fits_its_schema() -> None:
    assert list(mistakes()) == []


def edit(folder: Path, old: str, new: str) -> list[str]:
    """Mistakes of the manifests that have a text, with it replaced."""
    texts = {path.name: path.read_text() for path in FOLDER.iterdir()}
    changed = {name for name, content in texts.items() if old in content}
    assert changed
    for name, content in texts.items():
        (folder / name).write_text(content.replace(old, new))
    if "kustomization.yaml" not in changed:
        listing = yaml.safe_load(texts["kustomization.yaml"])
        resources = [name for name in listing["resources"] if name in {*changed, "settings.yaml"}]
        (folder / "kustomization.yaml").write_text(
            yaml.safe_dump({**listing, "resources": resources})
        )
    return list(mistakes(folder))


FAULTS = {
    "an unknown field": ("minReplicas:", "minReplica:", "minReplica"),
    "a field that KEDA does not have": ("cooldownPeriod:", "coolDownPeriod:", "coolDownPeriod"),
    "a number that KEDA wants as text": (
        'targetQueryValue: "1"',
        "targetQueryValue: 1",
        "targetQueryValue: Input should be a valid string",
    ),
    "a text that KEDA wants as number": (
        "pollingInterval: 15",
        'pollingInterval: "15"',
        "pollingInterval: Input should be a valid integer",
    ),
    "a field that kustomize does not have": ("resources:", "ressources:", "ressources"),
    "a folder that the image does not have": (
        "args: [api,",
        "command: [cp, -r, /var/lib/relaxd/cache, /data/cache]\n          args: [api,",
        "/var/lib/relaxd/cache is not in the image relaxd-api:0.1.0",
    ),
    "a program that the image does not have": ("[sleep,", "[curl,", "no program curl"),
    "a module that nobody wrote": (
        "service.processes.migrate",
        "service.processes.migrates",
        "no module service.processes.migrates",
    ),
    "an image that nobody builds": ("relaxd-worker:", "relaxd-cuda:", "no Dockerfile makes"),
    "a folder to write into on the read-only root": (
        "value: /data/cache",
        "value: /var/cache/relaxd",
        "RELAXD_CACHE_DIR=/var/cache/relaxd is on the read-only root",
    ),
    "a volume that is not mounted": (
        "mountPath: /tmp",
        "mountPath: /scratch",
        "TMPDIR=/tmp is on the read-only root",
    ),
}


@pytest.mark.parametrize(("old", "new", "named"), FAULTS.values(), ids=FAULTS)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    wrong = edit(tmp_path, old, new)
    assert any(named in mistake for mistake in wrong), wrong


def test_every_file_is_listed() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in FOLDER.iterdir()} == {"kustomization.yaml", *listed}


def test_containers_have_no_more_rights_than_in_compose() -> None:
    for container in containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
    for deployment in deployments():
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["automountServiceAccountToken"] is False


def test_the_images_are_those_that_compose_builds() -> None:
    compose = yaml.safe_load((FOLDER.parents[1] / "docker-compose.yml").read_text())
    built = {compose["services"][name]["image"] for name in ("api", "worker")}
    assert {container["image"] for container in containers()} == built


def test_settings_are_known_and_a_worker_has_the_time_to_drain() -> None:
    settings = dict(name_values("ConfigMap", "relaxd")["data"])
    for container in containers():
        settings |= {entry["name"]: entry["value"] for entry in container.get("env", ())}
    known = {f"RELAXD_{name.upper()}" for name in Settings.model_fields}
    elsewhere = {"TMPDIR", "RELAXD_CACHE_DIR"}
    assert set(settings) - known == elsewhere
    pod = name_values("Deployment", "relaxd-worker")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= float(settings["RELAXD_DRAIN_S"]) + 30


def test_what_a_policy_a_budget_or_a_service_selects_is_there() -> None:
    labels = [deployment["spec"]["template"]["metadata"]["labels"] for deployment in deployments()]
    for document in MISTAKES:
        spec = document.get("spec", {})
        chosen = spec.get("podSelector") or spec.get("selector") or {}
        wanted = chosen.get("matchLabels", chosen)
        assert any(wanted.items() <= result.items() for result in labels), document["metadata"]


def test_keda_counts_the_builds_that_wait_and_run(tmp_path: Path) -> None:
    (trigger,) = name_values("ScaledObject", "relaxd-worker")["spec"]["triggers"]
    target = name_values("ScaledObject", "relaxd-worker")["spec"]["scaleTargetRef"]["name"]
    assert name_values("Deployment", target)
    assert name_values("TriggerAuthentication", trigger["authenticationRef"]["name"])
    db = Database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    upgrade(db)
    fill(db)
    with db.read() as connection:
        query = text(trigger["metadata"]["query"])
        assert connection.execute(query).scalar_one() == QUEUED + RUNNING
    db.close()
