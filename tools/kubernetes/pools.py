"""Manifests of the pools of workers, generated from one description in TOML."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.pools import read_pools

NAMESPACE = "relaxd"
COMMAND = "python -m tools.kubernetes write"
AUTHENTICATION = "relaxd-queue"
LABELS = {"app.kubernetes.io/name": "relaxd", "app.kubernetes.io/component": "worker"}
POOL = "relaxd-pool"
"""The label of a pool's name."""

Document = dict[str, Any]


class Pool(BaseModel):
    """One pool. `once`: each worker is a Job of one build, which nothing ends before its build has
    ended. `above`: builds that another pool takes. `drain_s`: how long a worker that is to end goes
    on with its build.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    capabilities: str
    min: int = Field(default=0, ge=0)
    max: int = Field(ge=1)
    above: int = Field(default=0, ge=0)
    once: bool = False
    image: str = "relaxd-worker:0.1.0"
    cpu: int = Field(default=2, ge=1)
    memory_mb: int = Field(default=8192, ge=1024)
    gpu: int = Field(default=0, ge=0)
    drain_s: int = Field(default=600, ge=1)
    grace_s: int = Field(default=60, ge=20)
    runtime_class: str | None = None
    priority_class: str | None = None
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, str]] = []

    @model_validator(mode="after")
    def _is_possible(self) -> "Pool":
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is more than max = {self.max}")
        if self.once and self.above:
            raise ValueError("a pool of one build a worker takes no `above`")
        return self


def read_description(path: Path) -> dict[str, Pool]:
    """The pools of a description by name; raises ValueError."""
    content = tomllib.loads(path.read_text())
    pools = {name: Pool.model_validate(values) for name, values in content.items()}
    read_pools(setting_of(pools))
    return pools


def setting_of(pools: Mapping[str, Pool]) -> str:
    """The value of RELAXD_POOLS for them."""
    return " ".join(
        f"{name}{f':{pool.above}' if pool.above else ''}={pool.capabilities.replace(' ', '')}"
        for name, pool in pools.items()
    )


def render(pools: Mapping[str, Pool]) -> str:
    """Every document of the pools, as YAML."""
    text = yaml.safe_dump_all(_documents(pools), sort_keys=False, width=120)
    return f"# Generated from pools.toml by `{COMMAND}`; change that.\n{text}"


def _documents(pools: Mapping[str, Pool]) -> Iterator[Document]:
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata("relaxd-pools"),
        "data": {"RELAXD_POOLS": setting_of(pools)},
    }
    secret = {"parameter": "connection", "name": AUTHENTICATION, "key": "connection"}
    spec = {"secretTargetRef": [secret]}
    yield _keda("TriggerAuthentication", _metadata(AUTHENTICATION), spec)
    for name, pool in pools.items():
        yield from ([_scaled_job(name, pool)] if pool.once else _deployment(name, pool))


def _deployment(name: str, pool: Pool) -> Iterator[Document]:
    labels = {**LABELS, POOL: name}
    metadata = {**_metadata(f"relaxd-worker-{name}"), "labels": labels}
    selector = {"matchLabels": labels}
    # KEDA sets the number of replicas.
    spec = {
        "selector": selector,
        "strategy": {"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "template": _template(name, pool),
    }
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    yield {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(metadata["name"]),
        "spec": {"maxUnavailable": "25%", "selector": selector},
    }
    down = {
        "stabilizationWindowSeconds": 300,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    }
    fallback = {"failureThreshold": 3, "replicas": min(pool.max, max(pool.min, 1))}
    scaling = {
        "scaleTargetRef": {"name": metadata["name"]},
        **_replicas(pool),
        "cooldownPeriod": 300,
        "fallback": fallback,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": down}}},
        "triggers": [_trigger(name, "builds")],
    }
    yield _keda("ScaledObject", _metadata(metadata["name"]), scaling)


def _scaled_job(name: str, pool: Pool) -> Document:
    job = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 300,
        "template": _template(name, pool),
    }
    spec = {
        "jobTargetRef": job,
        **_replicas(pool),
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 10,
        "scalingStrategy": {"strategy": "accurate"},
        "triggers": [_trigger(name, "queued")],
    }
    return _keda("ScaledJob", _metadata(f"relaxd-worker-{name}"), spec)


def _replicas(pool: Pool) -> dict[str, int]:
    return {"minReplicaCount": pool.min, "maxReplicaCount": pool.max, "pollingInterval": 15}


def _trigger(name: str, column: str) -> Document:
    query = {
        "query": f"SELECT {column} FROM scaling WHERE pool = '{name}'",
        "targetQueryValue": "1",
        "activationTargetQueryValue": "0",
    }
    reference = {"name": AUTHENTICATION}
    return {"type": "postgresql", "metadata": query, "authenticationRef": reference}


def _keda(kind: str, metadata: Document, spec: Document) -> Document:
    return {"apiVersion": "keda.sh/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _metadata(name: str) -> Document:
    return {"name": name, "namespace": NAMESPACE}


def _template(name: str, pool: Pool) -> Document:
    notes = {"prometheus.io/scrape": "true", "prometheus.io/port": "9484"}
    if pool.once:
        notes["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"
    optional = {
        "runtimeClassName": pool.runtime_class,
        "priorityClassName": pool.priority_class,
        "nodeSelector": pool.node_selector,
        "tolerations": pool.tolerations,
        "restartPolicy": "Never" if pool.once else None,
    }
    spec = {
        "serviceAccountName": "relaxd",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": pool.drain_s + pool.grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **{key: value for key, value in optional.items() if value},
        "containers": [_container(pool)],
        "volumes": [
            {"name": "data", "emptyDir": {"sizeLimit": "48Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    return {"metadata": {"labels": {**LABELS, POOL: name}, "annotations": notes}, "spec": spec}


def _container(pool: Pool) -> Document:
    port = {"port": "metrics"}
    # The limit is above one build's own, so that a build fails by itself and not with its worker.
    limits: dict[str, Any] = {"memory": f"{pool.memory_mb + 2048}Mi"}
    if pool.gpu:
        limits["nvidia.com/gpu"] = pool.gpu
    return {
        "name": "worker",
        "image": pool.image,
        **({"args": ["worker", "--once"]} if pool.once else {}),
        "envFrom": [{"configMapRef": {"name": "relaxd"}}, {"secretRef": {"name": "relaxd"}}],
        "env": [
            {"name": variable, "value": value}
            for variable, value in (
                ("RELAXD_CAPABILITIES", pool.capabilities),
                ("RELAXD_CACHE_DIR", "/data/cache"),
                ("RELAXD_DRAIN_S", str(pool.drain_s)),
                ("RELAXD_MEMORY_MB", str(pool.memory_mb)),
                ("RELAXD_WORKER_METRICS_PORT", "9484"),
            )
        ],
        "ports": [{"name": "metrics", "containerPort": 9484}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "requests": {"cpu": str(pool.cpu), "memory": f"{pool.memory_mb // 2}Mi"},
            "limits": limits,
        },
        # The port answers without the database, whose absence a worker outlives.
        "startupProbe": {"tcpSocket": port, "periodSeconds": 2, "failureThreshold": 60},
        "livenessProbe": {
            "tcpSocket": port,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
