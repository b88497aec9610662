"""The client's half for administrators: tokens, tenants, the audit log."""

from collections.abc import Iterable
from datetime import date
from typing import Any
from urllib.parse import quote

from relaxd.client.transport import Transport


class Administration:
    """Operations of a tenant's administrators and the service's operators; `tenant` is by default
    one's own. Raises as `relaxd.Client`.
    """

    _transport: Transport

    def whoami(self) -> dict[str, Any]:
        """`tenant`, `name`, `scopes`, `method` of signing in, and `namespace`, the first part of
        the names of one's repositories.
        """
        return dict(self._transport.json("GET", "/v1/whoami"))

    def tokens(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Every token of a tenant, without its secret."""
        return list(self._transport.json("GET", "/v1/tokens", params=_of(tenant))["tokens"])

    def create_token(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        days: float | None = None,
        tenant: str | None = None,
    ) -> dict[str, Any]:
        """A new token; `token` is its text, which the service shows this once."""
        body = {"name": name, "scopes": list(scopes), "days": days, "tenant": tenant}
        return dict(self._transport.json("POST", "/v1/tokens", json=body))

    def revoke_token(self, token_id: str, tenant: str | None = None) -> dict[str, Any]:
        """End a token at once."""
        path = f"/v1/tokens/{quote(token_id, safe='')}"
        return dict(self._transport.json("DELETE", path, params=_of(tenant)))

    def rotate_token(
        self, token_id: str, *, overlap_hours: float = 0, tenant: str | None = None
    ) -> dict[str, Any]:
        """A token's successor, as `create_token`; the old one ends after the overlap."""
        path = f"/v1/tokens/{quote(token_id, safe='')}:rotate"
        body = {"overlap_hours": overlap_hours}
        return dict(self._transport.json("POST", path, json=body, params=_of(tenant)))

    def usage(
        self, since: date | None = None, *, by: Iterable[str] = (), tenant: str | None = None
    ) -> dict[str, Any]:
        """The usage of builds since a day, by default the last 30: `rows` broken down by some of
        tenant, project, target, stage and day, and `stores_bytes` by tenant.
        """
        params = [*(("by", part) for part in by), *_of(tenant).items()]
        params += [] if since is None else [("since", since.isoformat())]
        return dict(self._transport.json("GET", "/v1/usage", params=params))

    def tenants(self) -> list[dict[str, Any]]:
        """Every tenant, for operators."""
        return list(self._transport.json("GET", "/v1/tenants")["tenants"])

    def create_tenant(self, name: str) -> dict[str, Any]:
        """A new tenant without limits, for operators."""
        return dict(self._transport.json("POST", "/v1/tenants", json={"name": name}))

    def set_tenant(self, name: str, **changes: Any) -> dict[str, Any]:
        """Change `stored_bytes`, `running`, `queued`, `requests` (None: no limit), `weight` or
        `shares_cache`, for operators.
        """
        path = f"/v1/tenants/{quote(name, safe='')}"
        return dict(self._transport.json("PATCH", path, json=changes))

    def delete_tenant(self, name: str) -> dict[str, Any]:
        """Delete a tenant with its tokens, jobs and tags, for operators: `name`, and how many there
        were. Raises ServerError with code `tenant.busy` while builds of it end.
        """
        path = f"/v1/tenants/{quote(name, safe='')}"
        return dict(self._transport.json("DELETE", path))

    def audit(
        self, *, limit: int = 100, before: int | None = None, tenant: str | None = None
    ) -> list[dict[str, Any]]:
        """Entries of the audit log, the newest first; `before` is the id of the last one seen."""
        params = {"limit": str(limit)} | _of(tenant)
        params |= {"before": str(before)} if before is not None else {}
        return list(self._transport.json("GET", "/v1/audit", params=params)["entries"])

    def webhooks(self) -> list[dict[str, Any]]:
        """The tenant's webhooks, without their secrets."""
        return list(self._transport.json("GET", "/v1/webhooks")["webhooks"])

    def create_webhook(self, url: str, events: Iterable[str] | None = None) -> dict[str, Any]:
        """A new webhook, told of these events or of all; `secret` signs its messages, and is shown
        this once.
        """
        body: dict[str, Any] = {"url": url} | ({"events": list(events)} if events else {})
        return dict(self._transport.json("POST", "/v1/webhooks", json=body))

    def remove_webhook(self, webhook: str) -> None:
        """Remove a webhook."""
        self._transport.request("DELETE", f"/v1/webhooks/{quote(webhook, safe='')}")

    def ping_webhook(self, webhook: str) -> None:
        """Have a message of type `webhook.ping` sent."""
        self._transport.request("POST", f"/v1/webhooks/{quote(webhook, safe='')}:ping")

    def deliveries(self, webhook: str) -> list[dict[str, Any]]:
        """A webhook's messages of the last days, the newest first."""
        path = f"/v1/webhooks/{quote(webhook, safe='')}/deliveries"
        return list(self._transport.json("GET", path)["deliveries"])


def _of(tenant: str | None) -> dict[str, str]:
    return {"tenant": tenant} if tenant else {}
