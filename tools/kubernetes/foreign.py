"""Documents that are not Kubernetes' own: the fields of KEDA 2.16 and of kustomize that the
manifests use. Every other field is refused, for KEDA's own server drops it without a word.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel


class _Strict(BaseModel):
    """A document without unknown fields, whose numbers are no strings."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class _Metadata(_Strict):
    name: str
    namespace: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _PostgresQuery(_Strict):
    """The trigger's values, all of which are strings."""

    query: str
    target_query_value: str = Field(pattern=r"[0-9.]+")
    activation_target_query_value: str = Field("0", pattern=r"[0-9.]+")


class _AuthenticationRef(_Strict):
    name: str


class _Trigger(_Strict):
    type: Literal["postgresql"]
    metadata: _PostgresQuery
    authentication_ref: _AuthenticationRef


class _ScaleTarget(_Strict):
    name: str


class _Fallback(_Strict):
    failure_threshold: int = Field(ge=1)
    replicas: int = Field(ge=0)


class _AutoscalerConfig(_Strict):
    behavior: dict[str, Any]


class _Advanced(_Strict):
    horizontal_pod_autoscaler_config: _AutoscalerConfig


class _ScaledObjectSpec(_Strict):
    scale_target_ref: _ScaleTarget
    min_replica_count: int = Field(0, ge=0)
    max_replica_count: int = Field(100, ge=1)
    polling_interval: int = Field(30, ge=1)
    cooldown_period: int = Field(300, ge=0)
    fallback: _Fallback | None = None
    advanced: _Advanced | None = None
    triggers: list[_Trigger] = Field(min_length=1)


class _ScalingStrategy(_Strict):
    strategy: Literal["default", "accurate", "eager"]


class _ScaledJobSpec(_Strict):
    job_target_ref: dict[str, Any]
    min_replica_count: int = Field(0, ge=0)
    max_replica_count: int = Field(100, ge=1)
    polling_interval: int = Field(30, ge=1)
    successful_jobs_history_limit: int = Field(100, ge=0)
    failed_jobs_history_limit: int = Field(100, ge=0)
    scaling_strategy: _ScalingStrategy
    triggers: list[_Trigger] = Field(min_length=1)


class _SecretKey(_Strict):
    parameter: Literal["connection"]
    name: str
    key: str


class _AuthenticationSpec(_Strict):
    secret_target_ref: list[_SecretKey] = Field(min_length=1)


class _ScaledObject(_Strict):
    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    metadata: _Metadata
    spec: _ScaledObjectSpec


class _ScaledJob(_Strict):
    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledJob"]
    metadata: _Metadata
    spec: _ScaledJobSpec


class _TriggerAuthentication(_Strict):
    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["TriggerAuthentication"]
    metadata: _Metadata
    spec: _AuthenticationSpec


class _Labels(_Strict):
    pairs: dict[str, str]


class _Kustomization(_Strict):
    api_version: Literal["kustomize.config.k8s.io/v1beta1"]
    kind: Literal["Kustomization"]
    namespace: str
    labels: list[_Labels]
    resources: list[str]


TYPES: Mapping[str, type[_Strict]] = {
    "ScaledObject": _ScaledObject,
    "ScaledJob": _ScaledJob,
    "TriggerAuthentication": _TriggerAuthentication,
    "Kustomization": _Kustomization,
}


def foreign_mistakes(document: Mapping[str, Any]) -> Iterator[str]:
    """List what the document's type refuses, each with the field's path."""
    try:
        TYPES[document["kind"]].model_validate(document)
    except ValidationError as error:
        for mistake in error.errors(include_url=False):
            yield f"{'.'.join(map(str, mistake['loc']))}: {mistake['msg']}"


def read_embedded(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Documents of Kubernetes that KEDA makes of parts of this one, to be checked as such."""
    spec, metadata = document.get("spec", {}), {"name": "embedded"}
    if "jobTargetRef" in spec:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        yield {**job, "spec": spec["jobTargetRef"]}
    if advanced := spec.get("advanced"):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "embedded"}
        behavior = advanced["horizontalPodAutoscalerConfig"]["behavior"]
        autoscaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        scaled = {"scaleTargetRef": target, "maxReplicas": 1, "behavior": behavior}
        yield {**autoscaler, "metadata": metadata, "spec": scaled}
