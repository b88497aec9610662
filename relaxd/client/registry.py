"""The client's half for the registry: names of models, their versions, and aliases that move."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from relaxd.client.transport import Transport


class Registry:
    """Operations on registered models; `version` is a number, an alias or `latest`. Raises as
    `relaxd.Client`, with code `registry.unknown` for what is not registered.
    """

    _transport: Transport

    def list_registered(
        self,
        *,
        project: str | None = None,
        labels: Mapping[str, str] | None = None,
        after: str = "",
        limit: int = 1000,
    ) -> list[dict[str, Any]]:
        """The tenant's models by name, of a project and with labels if given."""
        params: list[tuple[str, str]] = [("limit", str(limit)), ("after", after)]
        params += [] if project is None else [("project", project)]
        params += [("label", f"{key}={value}") for key, value in (labels or {}).items()]
        return list(self._transport.json("GET", "/v1/models", params=params)["models"])

    def get_registered(self, name: str) -> dict[str, Any]:
        """A model with its aliases and its newest versions."""
        return dict(self._transport.json("GET", _path(name)))

    def describe_model(self, name: str, **changes: Any) -> dict[str, Any]:
        """Set some of `project`, `labels` and `notes` of a model."""
        return dict(self._transport.json("PATCH", _path(name), json=changes))

    def register(
        self,
        name: str,
        *,
        job: str | None = None,
        digest: str | None = None,
        labels: Mapping[str, str] | None = None,
        notes: str = "",
    ) -> dict[str, Any]:
        """Make the next version of a name, of a job's bundles or of a bundle's digest."""
        body = {"job": job, "digest": digest, "labels": dict(labels or {}), "notes": notes}
        return dict(self._transport.json("POST", f"{_path(name)}/versions", json=body))

    def version(self, name: str, version: str = "latest") -> dict[str, Any]:
        """A version, whose `digest` is of a bundle or an index."""
        return dict(
            self._transport.json("GET", f"{_path(name)}/versions/{quote(version, safe='')}")
        )

    def move_alias(self, name: str, alias: str, version: str | int) -> dict[str, Any]:
        """Point an alias at a version; `previous` is the one before."""
        path = f"{_path(name)}/aliases/{quote(alias, safe='')}"
        return dict(self._transport.json("PUT", path, json={"version": str(version)}))

    def remove_alias(self, name: str, alias: str) -> None:
        """Remove an alias."""
        self._transport.request("DELETE", f"{_path(name)}/aliases/{quote(alias, safe='')}")

    def remove_registered(self, name: str, version: int | None = None) -> None:
        """Remove a version that no alias names; without one, the name with all that it has."""
        path = _path(name) if version is None else f"{_path(name)}/versions/{version}"
        self._transport.request("DELETE", path)


def _path(name: str) -> str:
    return f"/v1/models/{quote(name, safe='')}"
