"""Promises of the Kubernetes manifests, those of the shipped pools and of others, and that they fit
the service.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from service.db.engine import Database
from service.db.pools import declare
from service.db.upgrade import upgrade
from service.pools import read_pools
from service.settings import Settings
from tools.kubernetes.checking import FOLDER, documents, mistakes
from tools.kubernetes.pools import read_description, render

MISTAKES = [document for _, document in documents()]
POOLS = """
[x86]
capabilities = "*,!cuda-*,!raw-cuda"
min = 1
max = 4

[spot]
capabilities = "*,!cuda-*,!raw-cuda"
above = 4
max = 40
drain_s = 90
grace_s = 20
priority_class = "spot"
node_selector = {"karpenter.sh/capacity-type" = "spot"}
tolerations = [{key = "spot", operator = "Exists", effect = "NoSchedule"}]

[cuda]
capabilities = "cuda-*,raw-cuda"
max = 4
once = true
gpu = 1
image = "registry.example/relaxd-worker-cuda:1"
runtime_class = "nvidia"
tolerations = [{key = "nvidia.com/gpu", operator = "Exists", effect = "NoSchedule"}]
"""


def write_pools(folder: Path, text: str = POOLS) -> Path:
    """Write the manifests with other pools into a folder; it."""
    for path in FOLDER.iterdir():
        (folder / path.name).write_text(path.read_text())
    (folder / "pools.toml").write_text(text)
    (folder / "pools.yaml").write_text(render(read_description(folder / "pools.toml")))
    return folder


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
    assert changed, old
    for name, content in texts.items():
        (folder / name).write_text(content.replace(old, new))
    if "kustomization.yaml" not in changed:
        listing = yaml.safe_load(texts["kustomization.yaml"])
        used = {*changed, "settings.yaml"}
        listing["resources"] = [name for name in listing["resources"] if name in used]
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(listing))
    return list(mistakes(folder))


FAULTS = {
    "an unknown field": ("minReplicas:", "minReplica:", "minReplica"),
    "a field that KEDA does not have": ("cooldownPeriod:", "coolDownPeriod:", "coolDownPeriod"),
    "a number that KEDA wants as text": (
        "targetQueryValue: '1'",
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
    assert {path.name for path in FOLDER.glob("*.yaml")} == {"kustomization.yaml", *listed}


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


def test_settings_are_known_and_a_worker_has_the_time_to_drain(tmp_path: Path) -> None:
    known = {f"RELAXD_{name.upper()}" for name in Settings.model_fields}
    shared = dict(name_values("ConfigMap", "relaxd")["data"])
    assert set(shared) - known == {"TMPDIR"}
    graces = {}
    for name, pod in worker_pods(write_pools(tmp_path)).items():
        own = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
        assert set(own) - known == {"RELAXD_CACHE_DIR"}
        settings = {key.removeprefix("RELAXD_").lower(): own[key] for key in own.keys() & known}
        assert Settings.model_validate({"data_dir": tmp_path, **settings}).capabilities
        graces[name] = pod["terminationGracePeriodSeconds"]
        assert graces[name] >= float(own["RELAXD_DRAIN_S"]) + 20
    assert graces["relaxd-worker-spot"] < 120, "a spot machine has two minutes' notice"


def worker_pods(folder: Path) -> dict[str, dict[str, Any]]:
    """The pods of the pools, by the name of what starts them."""
    specs = {
        each["metadata"]["name"]: each["spec"]
        for name, each in documents(folder)
        if name == "pools.yaml" and each["kind"] in ("Deployment", "ScaledJob")
    }
    return {
        name: spec.get("jobTargetRef", spec)["template"]["spec"] for name, spec in specs.items()
    }


def test_what_a_policy_a_budget_or_a_service_selects_is_there() -> None:
    labels = [deployment["spec"]["template"]["metadata"]["labels"] for deployment in deployments()]
    for document in MISTAKES:
        spec = document.get("spec", {})
        chosen = spec.get("podSelector") or spec.get("selector") or {}
        wanted = chosen.get("matchLabels", chosen)
        assert any(wanted.items() <= result.items() for result in labels), document["metadata"]


def test_other_pools_fit_the_schemas_and_ask_for_what_they_describe(tmp_path: Path) -> None:
    assert list(mistakes(write_pools(tmp_path))) == []
    pods = worker_pods(tmp_path)
    cuda, spot = pods["relaxd-worker-cuda"], pods["relaxd-worker-spot"]
    assert cuda["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert cuda["containers"][0]["args"] == ["worker", "--once"]
    assert (cuda["runtimeClassName"], cuda["restartPolicy"]) == ("nvidia", "Never")
    assert spot["nodeSelector"] == {"karpenter.sh/capacity-type": "spot"}
    assert spot["priorityClassName"] == "spot"


MISDESCRIBED = {
    "an unknown field": ("max = 40", "maxi = 40", "maxi"),
    "an unknown capability": ('"cuda-*,raw-cuda"', '"cuda-sm999"', "cuda-sm999"),
    "more at least than at most": ("min = 1", "min = 9", "min = 9 is more than max = 4"),
    "builds above of a pool of Jobs": ("once = true", "once = true\nabove = 2", "above"),
}


@pytest.mark.parametrize(("old", "new", "named"), MISDESCRIBED.values(), ids=MISDESCRIBED)
def test_a_mistake_in_the_description_is_named(
    tmp_path: Path, old: str, new: str, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        write_pools(tmp_path, POOLS.replace(old, new))


def test_a_description_without_its_manifests_is_noticed(tmp_path: Path) -> None:
    write_pools(tmp_path)
    (tmp_path / "pools.toml").write_text(POOLS.replace("max = 40", "max = 41"))
    assert "pools.yaml: it is not what pools.toml describes" in next(mistakes(tmp_path))


JOB = """INSERT INTO jobs (id, kind, state, model, request, fingerprint, created_at)
    VALUES (:job, 'compile', 'queued', 'sha256:', '{}', :job, 1)"""
BUILD = """INSERT INTO builds (id, job_id, position, target, capability, state, created_at, rung_at)
    VALUES (:job || '-0', :job, 0, :target, :target, 'queued', 1, 1)"""


def test_keda_reads_the_pools_that_the_service_declares(tmp_path: Path) -> None:
    write_pools(tmp_path)
    written = {(each["kind"], each["metadata"]["name"]): each for _, each in documents(tmp_path)}
    pools = read_pools(written["ConfigMap", "relaxd-pools"]["data"]["RELAXD_POOLS"])
    db = Database(f"sqlite:///{tmp_path / 'jobs.sqlite'}")
    upgrade(db)
    declare(db, pools)
    targets = {**{f"j{number}": "x86-64-v3" for number in range(6)}, "gpu": "cuda-sm80"}
    with db.write() as connection:
        for job, target in targets.items():
            connection.execute(text(JOB), {"job": job})
            connection.execute(text(BUILD), {"job": job, "target": target})
    counts = {}
    with db.read() as connection:
        for (kind, name), document in written.items():
            if kind in ("ScaledObject", "ScaledJob"):
                (trigger,) = document["spec"]["triggers"]
                assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in written
                counts[name] = connection.scalar(text(trigger["metadata"]["query"]))
    db.close()
    assert counts == {"relaxd-worker-x86": 6, "relaxd-worker-spot": 2, "relaxd-worker-cuda": 1}
