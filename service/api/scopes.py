"""The scopes that each endpoint requires: the one table of routes and scopes."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request

from service.api.errors import Forbidden
from service.identity import DEFAULT, Principal, Scope

SUBMIT, READ, PULL, PUSH, ADMIN = Scope


@dataclass(frozen=True)
class Need:
    """One scope of `scopes` (empty: anyone who has signed in), and with `home` a principal of the
    operator's tenant. `action` is what the audit log calls it, None for what changes nothing.
    """

    scopes: frozenset[Scope]
    home: bool = False
    action: str | None = None

    def allows(self, principal: Principal) -> bool:
        """True if the principal may."""
        if self.home and principal.tenant != DEFAULT:
            return False
        return not self.scopes or principal.has_any(self.scopes)


def _need(*scopes: Scope, home: bool = False, action: str | None = None) -> Need:
    return Need(frozenset(scopes), home, action)


OPEN = frozenset(
    {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/v1/sign-in"), ("POST", "/v1/sign-in")}
)
"""Answered without signing in."""

_BLOBS, _MANIFESTS = "/v2/{name:path}/blobs", "/v2/{name:path}/manifests/{reference}"
# Whoever submits a job uploads its model first. Bytes alone change nothing for others.
_UPLOADING = (PUSH, SUBMIT)

NEEDS: Mapping[tuple[str, str], Need] = {
    ("POST", "/v1/compile"): _need(SUBMIT, action="submit"),
    ("POST", "/v1/jobs"): _need(SUBMIT, action="submit"),
    ("POST", "/v1/inspect"): _need(SUBMIT, action="inspect"),
    ("POST", "/v1/jobs/{job_id}:cancel"): _need(SUBMIT, action="cancel"),
    ("POST", "/v1/jobs/{job_id}/gates"): _need(SUBMIT, action="gate.fail"),
    ("GET", "/v1/jobs"): _need(READ),
    ("GET", "/v1/jobs/{job_id}"): _need(READ),
    ("GET", "/v1/jobs/{job_id}/events"): _need(READ),
    ("GET", "/v1/jobs/{job_id}/logs"): _need(READ),
    ("GET", "/v1/overview"): _need(READ),
    ("GET", "/v1/overview/events"): _need(READ),
    ("GET", "/v1/targets"): _need(READ, SUBMIT),
    ("GET", "/v1/artifacts/{digest}"): _need(PULL),
    ("GET", "/v1/artifacts/{digest}/report"): _need(PULL, READ),
    ("GET", "/v1/artifacts/{digest}/trace"): _need(PULL, READ),
    ("GET", "/v1/actions/{digest}"): _need(PULL),
    ("GET", "/v1/models"): _need(READ, PULL),
    ("GET", "/v1/models/{name}"): _need(READ, PULL),
    ("GET", "/v1/models/{name}/builds"): _need(READ, PULL),
    ("PATCH", "/v1/models/{name}"): _need(PUSH, action="model.describe"),
    ("DELETE", "/v1/models/{name}"): _need(ADMIN, action="model.remove"),
    ("POST", "/v1/models/{name}/versions"): _need(PUSH, action="model.register"),
    ("GET", "/v1/models/{name}/versions/{version}"): _need(READ, PULL),
    ("DELETE", "/v1/models/{name}/versions/{version}"): _need(ADMIN, action="model.drop"),
    ("PUT", "/v1/models/{name}/aliases/{alias}"): _need(PUSH, action="alias.move"),
    ("DELETE", "/v1/models/{name}/aliases/{alias}"): _need(PUSH, action="alias.remove"),
    ("GET", "/v1/whoami"): _need(),
    ("GET", "/v1/pins"): _need(READ),
    ("PUT", "/v1/pins/{digest}"): _need(ADMIN, action="pin"),
    ("DELETE", "/v1/pins/{digest}"): _need(ADMIN, action="unpin"),
    ("POST", "/v1/gc"): _need(ADMIN, home=True, action="gc"),
    ("GET", "/v1/tokens"): _need(ADMIN),
    ("POST", "/v1/tokens"): _need(ADMIN, action="token.create"),
    ("DELETE", "/v1/tokens/{token_id}"): _need(ADMIN, action="token.revoke"),
    ("POST", "/v1/tokens/{token_id}:rotate"): _need(ADMIN, action="token.rotate"),
    ("GET", "/v1/webhooks"): _need(ADMIN),
    ("POST", "/v1/webhooks"): _need(ADMIN, action="webhook.create"),
    ("DELETE", "/v1/webhooks/{webhook_id}"): _need(ADMIN, action="webhook.delete"),
    ("POST", "/v1/webhooks/{webhook_id}:ping"): _need(ADMIN, action="webhook.ping"),
    ("GET", "/v1/webhooks/{webhook_id}/deliveries"): _need(ADMIN),
    ("GET", "/v1/audit"): _need(ADMIN),
    ("GET", "/v1/usage"): _need(READ),
    ("GET", "/v1/tenants"): _need(ADMIN, home=True),
    ("POST", "/v1/tenants"): _need(ADMIN, home=True, action="tenant.create"),
    ("PATCH", "/v1/tenants/{name}"): _need(ADMIN, home=True, action="tenant.set"),
    ("DELETE", "/v1/tenants/{name}"): _need(ADMIN, home=True, action="tenant.delete"),
    # Figures of all tenants together.
    ("GET", "/metrics"): _need(READ, home=True),
    ("GET", "/v2/"): _need(),
    ("HEAD", "/v2/"): _need(),
    ("GET", "/v2"): _need(),
    ("HEAD", "/v2"): _need(),
    ("GET", _BLOBS + "/{digest}"): _need(PULL),
    ("HEAD", _BLOBS + "/{digest}"): _need(PULL, *_UPLOADING),
    ("POST", _BLOBS + "/uploads/"): _need(*_UPLOADING, action="upload"),
    ("POST", _BLOBS + "/uploads"): _need(*_UPLOADING, action="upload"),
    ("GET", _BLOBS + "/uploads/{upload}"): _need(*_UPLOADING),
    ("PATCH", _BLOBS + "/uploads/{upload}"): _need(*_UPLOADING, action="upload"),
    ("PUT", _BLOBS + "/uploads/{upload}"): _need(*_UPLOADING, action="upload"),
    ("DELETE", _BLOBS + "/uploads/{upload}"): _need(*_UPLOADING, action="upload"),
    ("GET", _MANIFESTS): _need(PULL),
    ("HEAD", _MANIFESTS): _need(PULL, PUSH),
    ("PUT", _MANIFESTS): _need(PUSH, action="push"),
    ("GET", "/v2/{name:path}/tags/list"): _need(PULL),
    ("GET", "/v2/{name:path}/referrers/{digest}"): _need(PULL),
}


INFINITIVES: Mapping[str, str] = {
    "submit": "submit jobs",
    "inspect": "inspect models",
    "cancel": "cancel jobs",
    "gate.fail": "report failed gates",
    "pin": "pin artifacts",
    "unpin": "unpin artifacts",
    "model.describe": "describe registered models",
    "model.remove": "remove registered models",
    "model.register": "register versions of models",
    "model.drop": "remove versions of models",
    "alias.move": "move aliases",
    "alias.remove": "remove aliases",
    "webhook.create": "create webhooks",
    "webhook.delete": "delete webhooks",
    "webhook.ping": "send messages to webhooks",
    "gc": "collect garbage",
    "upload": "upload content",
    "push": "push artifacts",
    "token.create": "create tokens",
    "token.revoke": "revoke tokens",
    "token.rotate": "rotate tokens",
    "tenant.create": "create tenants",
    "tenant.set": "change tenants",
    "tenant.delete": "delete tenants",
}
"""What the audited actions do, for people."""


def need_of(method: str, path: str) -> Need:
    """Look up what a route requires; one that the table lacks is for the operator's admins."""
    return NEEDS.get((method, path), Need(frozenset({ADMIN}), home=True))


def principal_of(request: Request) -> Principal:
    """Whoever sent the request."""
    principal: Principal = request.state.principal
    return principal


async def authorize(request: Request) -> None:
    """Raise Forbidden unless the principal may call the endpoint; a dependency of every router."""
    path = request.scope["route"].path
    if (request.method, path) in OPEN:
        return
    need, principal = need_of(request.method, path), principal_of(request)
    request.state.action = need.action
    if not need.allows(principal):
        raise Forbidden(
            principal,
            INFINITIVES.get(need.action or "", f"send {request.method} {path}"),
            need.scopes,
            home=need.home,
        )
