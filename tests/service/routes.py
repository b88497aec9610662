"""Requests for every route that the table of scopes has, in a tenant's name."""

from collections.abc import Mapping

from service.identity import DEFAULT

UNKNOWN = "sha256:" + "e" * 64
JSON = {
    ("POST", "/v1/tokens"): {"name": "n", "scopes": ["read"]},
    ("POST", "/v1/tokens/{token_id}:rotate"): {},
    ("POST", "/v1/tenants"): {"name": "Not A Name"},
    ("PATCH", "/v1/tenants/{name}"): {},
    ("PUT", "/v1/pins/{digest}"): {},
    ("POST", "/v1/jobs/{job_id}/gates"): {
        "target": "x86-64-v3",
        "failed": [{"gate": "latency>5%", "result": "+8 %"}],
    },
    ("POST", "/v1/webhooks"): {"url": "http://hooks.example"},
    ("PATCH", "/v1/models/{name}"): {},
    ("POST", "/v1/models/{name}/versions"): {"digest": UNKNOWN},
    ("PUT", "/v1/models/{name}/aliases/{alias}"): {"version": "1"},
}


NOTHING = {
    "{job_id}": "0" * 16,
    "{token_id}": "0" * 16,
    "{digest}": UNKNOWN,
    "{reference}": "v1",
    "{upload}": "0" * 32,
    "{version}": "1",
    "{webhook_id}": "0" * 16,
    "{alias}": "prod",
}
"""What is not there, for each parameter of a path."""


def path_of(template: str, tenant: str, things: Mapping[str, str] = NOTHING) -> str:
    """A path of the route: a repository of the tenant, and those things."""
    namespace = "relaxd" if tenant == DEFAULT else tenant
    repository = f"{namespace}/things" if template.startswith("/v2") else "nobody"
    path = template.replace("{name:path}", repository).replace("{name}", repository)
    for parameter, value in {**NOTHING, **things}.items():
        path = path.replace(parameter, value)
    return path
