"""Endpoints about who may use the service: tokens of a tenant, tenants, and who one is."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from service.api.context import UsePrincipal, UseServices
from service.api.tenant_threads import TenantRoute
from service.api.wire import Document, Text
from service.errors import OpenService, UnknownTenant
from service.identity import (
    LONGEST_TENANT,
    Limits,
    Method,
    Principal,
    Scope,
    Tenant,
    Token,
    namespace,
)
from service.usecases.jobs import deleting
from service.usecases.tenants import tenants, tokens

router = APIRouter(route_class=TenantRoute, prefix="/v1", tags=["access"])

LINE = r"^[^\x00-\x1f\x7f]*$"
TenantName = Annotated[str, Field(max_length=LONGEST_TENANT, pattern=r"^[a-z0-9-]+$")]
OfTenant = Annotated[
    str | None,
    Query(description="The tenant; by default one's own.", max_length=80, pattern=r"^[^\x00]*$"),
]
TokenId = Annotated[str, Path(description="The token's id.", max_length=40)]
Amount = Annotated[int, Field(ge=0, le=1 << 53)]


class WhoamiOut(Document):
    """Whoever asks. `namespace` is the first part of the names of the tenant's repositories."""

    tenant: str
    name: str
    scopes: list[Scope]
    method: Method
    namespace: str


class TokenIn(Document):
    """A token to make; `days` null is one without end."""

    name: str = Field(min_length=1, max_length=200, pattern=LINE)
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(min_length=1, max_length=len(Scope))
    days: float | None = Field(None, gt=0, le=36500, allow_inf_nan=False)
    tenant: TenantName | None = None


class RotationIn(Document):
    """How many hours the old token stays good beside its successor."""

    overlap_hours: float = Field(0, ge=0, le=24 * 366, allow_inf_nan=False)


class TokenOut(BaseModel):
    """A token, without its secret."""

    id: str
    tenant: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @classmethod
    def of(cls, token: Token) -> "TokenOut":
        """From the domain."""
        return cls(**_members(token))


class IssuedOut(TokenOut):
    """A new token; `token` is its text, which is shown this once."""

    token: str

    @classmethod
    def of_issued(cls, issued: tokens.Issued) -> "IssuedOut":
        """From the domain."""
        return cls(**_members(issued.token), token=issued.text)


class TokenList(BaseModel):
    """Tokens, the oldest first."""

    tokens: list[TokenOut]


class TenantIn(Document):
    """A tenant to make."""

    name: Annotated[Text, Field(min_length=1, max_length=80)]


class TenantChange(Document):
    """Changes of a tenant; a limit of null is none, a member that is left out stays as it is."""

    stored_bytes: Amount | None = None
    running: Amount | None = None
    queued: Amount | None = None
    requests: float | None = Field(None, gt=0, le=1e6, allow_inf_nan=False)
    weight: float = Field(1.0, ge=0.001, le=1000, allow_inf_nan=False)
    shares_cache: bool = False


class TenantOut(BaseModel):
    """A tenant: its limits (bytes stored, builds running and queued, requests a second), and the
    bytes that it has stored.
    """

    name: str
    created_at: datetime
    stored_bytes: int | None
    running: int | None
    queued: int | None
    requests: float | None
    weight: float
    shares_cache: bool
    stores_bytes: int

    @classmethod
    def of(cls, tenant: Tenant) -> "TenantOut":
        """From the domain."""
        return cls(
            name=tenant.name,
            created_at=tenant.created_at,
            **vars(tenant.limits),
            weight=tenant.weight,
            shares_cache=tenant.shares_cache,
            stores_bytes=tenant.stored_bytes,
        )


class DeletionOut(BaseModel):
    """The things that were deleted with a tenant."""

    name: str
    jobs: int
    tokens: int
    tags: int


class TenantList(BaseModel):
    """Tenants by name."""

    tenants: list[TenantOut]


@router.get("/whoami", summary="Who one is to the service")
def whoami(principal: UsePrincipal) -> WhoamiOut:
    """The tenant, the scopes and the namespace of repositories."""
    return WhoamiOut(
        tenant=principal.tenant,
        name=principal.name,
        scopes=sorted(principal.scopes),
        method=principal.method,
        namespace=namespace(principal.tenant),
    )


@router.get("/tokens", summary="List tokens")
def list_tokens(
    services: UseServices, principal: UsePrincipal, tenant: OfTenant = None
) -> TokenList:
    """Those of one's tenant; operators may name another."""
    listed = tokens.list_all(services.core, choose_tenant(principal, tenant))
    return TokenList(tokens=[TokenOut.of(token) for token in listed])


@router.post("/tokens", summary="Make a token", status_code=201)
def create_token(
    request: Request, services: UseServices, principal: UsePrincipal, body: TokenIn
) -> IssuedOut:
    """Its text is shown this once: the service keeps a hash."""
    if principal.method is Method.NONE:
        raise OpenService
    tenant = choose_tenant(principal, body.tenant)
    issued = tokens.create(services.core, tenant, body.name, frozenset(body.scopes), body.days)
    request.state.subject = issued.token.id
    request.state.detail = {"of": tenant, "scopes": sorted(body.scopes), "days": body.days}
    return IssuedOut.of_issued(issued)


@router.delete("/tokens/{token_id}", summary="Revoke a token")
def revoke_token(
    services: UseServices, principal: UsePrincipal, token_id: TokenId, tenant: OfTenant = None
) -> TokenOut:
    """It is refused from the next request on."""
    return TokenOut.of(tokens.revoke(services.core, choose_tenant(principal, tenant), token_id))


@router.post("/tokens/{token_id}:rotate", summary="Replace a token", status_code=201)
def rotate_token(
    services: UseServices,
    principal: UsePrincipal,
    token_id: TokenId,
    body: RotationIn,
    tenant: OfTenant = None,
) -> IssuedOut:
    """A successor with the same name, scopes and length of life."""
    owner = choose_tenant(principal, tenant)
    return IssuedOut.of_issued(tokens.rotate(services.core, owner, token_id, body.overlap_hours))


@router.get("/tenants", summary="List tenants")
def list_tenants(services: UseServices) -> TenantList:
    """For operators: every tenant, its limits and what it stores."""
    return TenantList(tenants=[TenantOut.of(tenant) for tenant in tenants.list_all(services.core)])


@router.post("/tenants", summary="Make a tenant", status_code=201)
def create_tenant(request: Request, services: UseServices, body: TenantIn) -> TenantOut:
    """For operators."""
    request.state.subject = body.name
    return TenantOut.of(tenants.create(services.core, body.name))


@router.patch("/tenants/{name}", summary="Change a tenant's limits")
def change_tenant(
    request: Request,
    services: UseServices,
    name: Annotated[str, Path(max_length=80)],
    body: TenantChange,
) -> TenantOut:
    """For operators."""
    changes = body.model_dump(include=body.model_fields_set)
    request.state.detail = dict(changes)
    old = tenants.get(services.core, name)
    limits = Limits(
        **vars(old.limits) | {key: changes.pop(key) for key in _LIMITS & changes.keys()}
    )
    return TenantOut.of(tenants.change(services.core, name, limits=limits, **changes))


@router.delete("/tenants/{name}", summary="Delete a tenant")
def remove_tenant(
    request: Request, services: UseServices, name: Annotated[str, Path(max_length=80)]
) -> DeletionOut:
    """For operators: its tokens, jobs, tags and pins go at once, its blobs with the garbage. Builds
    that run are cancelled, and have to end first: a 409 until then.
    """
    done = deleting.delete_tenant(services.core, name)
    request.state.detail = {"jobs": done.jobs, "tokens": done.tokens, "tags": done.tags}
    return DeletionOut(**vars(done))


_LIMITS = frozenset(vars(Limits()))


def choose_tenant(principal: Principal, tenant: str | None) -> str:
    """The tenant that the request is about; raises UnknownTenant for any that is not the caller's,
    whether it is there or not.
    """
    if tenant is None or tenant == principal.tenant:
        return principal.tenant
    if principal.operates:
        return tenant
    raise UnknownTenant(tenant)


def _members(token: Token) -> dict[str, Any]:
    return {**vars(token), "scopes": sorted(token.scopes)}
