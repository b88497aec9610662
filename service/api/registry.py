"""Endpoints of the registry: names of models, their versions, and aliases that move."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from relaxd.errors import DeclarationError
from service.api.audit import change_by, record_success
from service.api.context import UsePrincipal, UseServices
from service.api.tenancy import LINE
from service.api.tenant_threads import TenantRoute
from service.api.wire import PROJECT, Digest, Document
from service.domain import ModelAlias, ModelVersion, RegisteredModel
from service.usecases.registry import models
from service.usecases.registry.measuring import MeasuredBuild, list_builds
from service.usecases.store.model_tags import LATEST

router = APIRouter(route_class=TenantRoute, prefix="/v1/models", tags=["registry of models"])

_NAME = r"^[a-z0-9]+([._-][a-z0-9]+)*$"
_ALIAS = r"^[a-z][a-z0-9._-]*$"
MOST_LABELS = 20
ModelName = Annotated[
    str, Path(description="The model's name.", max_length=100, pattern=_NAME, examples=["minilm"])
]
Alias = Annotated[
    str, Path(description="The alias.", max_length=60, pattern=_ALIAS, examples=["prod"])
]
VersionRef = Annotated[
    str,
    Path(
        description="A version's number, an alias, or `latest`.",
        max_length=60,
        pattern=r"^[a-z0-9][a-z0-9._-]*$",
        examples=["prod"],
    ),
]
VersionNumber = Annotated[int, Path(description="The version's number.", ge=1, le=10**9)]
Line = Annotated[str, Field(max_length=200, pattern=LINE)]
Labels = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9._/-]+$")], Line],
    Field(max_length=MOST_LABELS),
]
Notes = Annotated[str, Field(max_length=2000, pattern=r"^[^\x00]*$")]
Project = Annotated[str, Field(max_length=100, pattern=PROJECT)]


class VersionIn(Document):
    """A version to register: the bundle or index of that digest, or the index of a job."""

    digest: Digest | None = None
    job: Annotated[str, Field(max_length=32, pattern=r"^[A-Za-z0-9_-]+$")] | None = None
    labels: Labels = Field(default_factory=dict)
    notes: Notes = ""


class ModelChange(Document):
    """Changes of a model; a member that is left out stays as it is."""

    project: Project = ""
    labels: Labels = Field(default_factory=dict)
    notes: Notes = ""


class AliasIn(Document):
    """The version that the alias is to name: a number, another alias, or `latest`."""

    version: Annotated[str, Field(max_length=60, pattern=r"^[a-z0-9][a-z0-9._-]*$")]


class AliasOut(BaseModel):
    """An alias; `previous` is the version that it named before."""

    alias: str
    version: int
    previous: int | None
    moved_at: datetime
    moved_by: str

    @classmethod
    def of(cls, alias: ModelAlias) -> "AliasOut":
        """From the domain."""
        return cls(**asdict(alias))


class VersionOut(BaseModel):
    """A version; `digest` is of a bundle or an index."""

    name: str
    version: int
    digest: str
    job_id: str | None
    submitter: str
    labels: dict[str, str]
    notes: str
    created_at: datetime

    @classmethod
    def of(cls, version: ModelVersion) -> "VersionOut":
        """From the domain."""
        return cls(**asdict(version))


class ModelOut(BaseModel):
    """A name with its aliases; `last_version` is the newest version's number."""

    name: str
    project: str
    labels: dict[str, str]
    notes: str
    created_at: datetime
    last_version: int
    aliases: list[AliasOut]

    @classmethod
    def of(cls, model: RegisteredModel) -> "ModelOut":
        """From the domain."""
        return cls(**asdict(model))


class ChangedPart(BaseModel):
    """A part of the action key that differs from the version before: null where there is none."""

    part: str
    before: Any
    after: Any


class VersionBuildOut(BaseModel):
    """A target of a version with its newest profile, at the favoured sizes `dims`; `error` is the
    greatest share of the tolerance that an output used. `changed` is null where no version before
    has the target, and `problem` says why a bundle cannot be read.
    """

    version: int
    target: str
    digest: str
    size: int | None
    status: str | None
    dims: dict[str, int] | None
    latency_ms: float | None
    reference_ms: float | None
    processor: str | None
    measured_at: str | None
    error: float | None
    action_key: str | None
    changed: list[ChangedPart] | None
    problem: str | None

    @classmethod
    def of(cls, build: MeasuredBuild) -> "VersionBuildOut":
        """From the use case."""
        changed = [
            ChangedPart(part=one.part, before=one.have, after=one.want)
            for one in build.changed or ()
        ]
        return cls(**{**vars(build), "changed": None if build.changed is None else changed})


class VersionBuilds(BaseModel):
    """Builds of a model, those of its newest version first."""

    builds: list[VersionBuildOut]


class ModelList(BaseModel):
    """Models by name."""

    models: list[ModelOut]


class ModelDetail(ModelOut):
    """A model with its versions, the newest first."""

    versions: list[VersionOut]


@router.get("", summary="List registered models")
def list_models(
    services: UseServices,
    principal: UsePrincipal,
    project: Annotated[str | None, Query(max_length=100, pattern=LINE)] = None,
    label: Annotated[
        list[Annotated[str, Field(max_length=300, pattern=LINE)]] | None,
        Query(description="`KEY=VALUE`; repeatable.", max_length=MOST_LABELS),
    ] = None,
    after: Annotated[
        str, Query(description="The last name seen.", max_length=100, pattern=LINE)
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ModelList:
    """By name; of a project, and with labels, where these are given."""
    listed = models.list_models(
        services.core,
        principal.tenant,
        project=project,
        labels=dict(map(_label, label or [])),
        after=after,
        limit=limit,
    )
    return ModelList(models=[ModelOut.of(model) for model in listed])


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise DeclarationError(
            f"cannot read label {text!r}", field="label", hint="as in ?label=team=vision"
        )
    return key, value


@router.get("/{name}", summary="A registered model and its versions")
def show_model(
    services: UseServices,
    principal: UsePrincipal,
    name: ModelName,
    before: Annotated[
        int | None, Query(ge=1, le=10**9, description="The last version seen.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ModelDetail:
    """Its versions are the newest first."""
    core, tenant = services.core, principal.tenant
    model = models.get_model(core, tenant, name)
    versions = models.list_versions(core, tenant, name, before=before, limit=limit)
    return ModelDetail(**asdict(model), versions=[VersionOut.of(one) for one in versions])


@router.get("/{name}/builds", summary="The builds of a registered model over its versions")
def show_builds(
    services: UseServices,
    principal: UsePrincipal,
    name: ModelName,
    before: Annotated[
        int | None, Query(ge=1, le=10**9, description="The last version seen.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=50, description="Of so many versions.")] = 20,
) -> VersionBuilds:
    """List what each measured, and what changed since the version before; the newest first."""
    core, tenant = services.core, principal.tenant
    models.get_model(core, tenant, name)
    builds = list_builds(core, tenant, name, before=before, limit=limit)
    return VersionBuilds(builds=[VersionBuildOut.of(build) for build in builds])


@router.patch("/{name}", summary="Set a model's project, labels and notes")
def describe_model(
    services: UseServices, principal: UsePrincipal, name: ModelName, body: ModelChange
) -> ModelOut:
    """Labels are replaced as a whole."""
    values = body.model_dump(exclude_unset=True)
    return ModelOut.of(models.describe(services.core, principal.tenant, name, **values))


@router.delete("/{name}", summary="Remove a model with its versions and aliases", status_code=204)
def remove_model(services: UseServices, principal: UsePrincipal, name: ModelName) -> None:
    """The next collection may remove what only its versions kept."""
    models.remove_model(services.core, principal.tenant, name)


@router.post("/{name}/versions", summary="Register a version", status_code=201)
def register(
    request: Request,
    services: UseServices,
    principal: UsePrincipal,
    name: ModelName,
    body: VersionIn,
) -> VersionOut:
    """The next number of the name, which is made if it is new; the bundle stays in the store."""
    if (body.digest is None) == (body.job is None):
        raise DeclarationError("give either `digest` or `job`, not both or neither", field="digest")
    version = models.register(
        services.core,
        principal.tenant,
        name,
        digest=body.digest,
        job_id=body.job,
        submitter=principal.name,
        labels=body.labels,
        notes=body.notes,
    )
    request.state.subject = f"{name}@{version.version}"
    return VersionOut.of(version)


@router.get("/{name}/versions/{version}", summary="A version by number or alias")
def show_version(
    services: UseServices, principal: UsePrincipal, name: ModelName, version: VersionRef
) -> VersionOut:
    """`latest` is the one with the greatest number."""
    return VersionOut.of(models.resolve(services.core, principal.tenant, name, version))


@router.delete("/{name}/versions/{version}", summary="Remove a version", status_code=204)
def remove_version(
    services: UseServices, principal: UsePrincipal, name: ModelName, version: VersionNumber
) -> None:
    """No later version gets its number."""
    models.remove_version(services.core, principal.tenant, name, version)


@router.put("/{name}/aliases/{alias}", summary="Point an alias at a version")
def move_alias(
    request: Request,
    services: UseServices,
    principal: UsePrincipal,
    name: ModelName,
    alias: Alias,
    body: AliasIn,
) -> AliasOut:
    """Makes or moves it; the audit log has who did, and from which version to which."""
    if alias == LATEST:
        raise DeclarationError(
            f"`{alias}` always names the newest version and cannot be moved",
            field="alias",
            hint="choose another alias",
        )
    change = change_by(request, status=200)
    moved = models.move_alias(services.core, principal.tenant, name, alias, body.version, change)
    record_success(request, change)
    return AliasOut.of(moved)


@router.delete("/{name}/aliases/{alias}", summary="Remove an alias", status_code=204)
def remove_alias(
    services: UseServices, principal: UsePrincipal, name: ModelName, alias: Alias
) -> None:
    """The version that it named stays."""
    models.remove_alias(services.core, principal.tenant, name, alias)
