"""The OpenAPI document: FastAPI's, with errors by status, examples, tags and the token added."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from relaxd.http.errors import MEDIA_TYPE
from service.api.auth import OPEN
from service.api.examples import ANSWERS, BODIES
from service.api.refusals import refusals
from service.api.wire import EventOut, JobIn, ProblemOut, RequestIn

SCHEMAS = "#/components/schemas/"
METHODS = frozenset({"get", "put", "post", "delete", "patch", "head", "options"})
JSON_TYPE, FORM_TYPE = "application/json", "multipart/form-data"
PROBLEM_SCHEMA = {"$ref": f"{SCHEMAS}ProblemOut"}
PROBLEM = {
    "description": "Any other problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA}},
}
REGISTRY = """The OCI distribution API over the same store: any OCI tool pushes models and pulls \
bundles. Its paths are not described one by one, since a repository's name has slashes, which the \
parameters of an OpenAPI path cannot have; the [distribution specification]\
(https://github.com/opencontainers/distribution-spec) is their description. Errors are lists, as \
it wants them.

- `GET /v2/`: the version
- `GET`, `HEAD /v2/{name}/blobs/{digest}`: a blob, whole or by `Range`
- `POST /v2/{name}/blobs/uploads/`: begins an upload; with `?digest=` takes it whole; with \
`?mount=` and `?from=` takes a blob of another repository
- `GET`, `PATCH`, `PUT`, `DELETE /v2/{name}/blobs/uploads/{upload}`: how far it is, the next \
chunk, its end by `?digest=`, giving it up
- `GET`, `HEAD`, `PUT /v2/{name}/manifests/{reference}`: a manifest or an index, by tag or digest
- `GET /v2/{name}/tags/list`: tags
- `GET /v2/{name}/referrers/{digest}`: profiles, provenance and bills of materials of a bundle
"""
TAGS: list[dict[str, Any]] = [
    {"name": "jobs", "description": "Submit models, and follow what becomes of them."},
    {"name": "models", "description": "Models before they are compiled, and the targets."},
    {"name": "artifacts", "description": "Bundles by digest: files, reports, action keys."},
    {
        "name": "registry",
        "description": REGISTRY,
        "externalDocs": {
            "description": "OCI distribution specification",
            "url": "https://github.com/opencontainers/distribution-spec/blob/main/spec.md",
        },
    },
    {"name": "registry of models", "description": "Names, versions and aliases of bundles."},
    {"name": "webhooks", "description": "URLs that are told of events."},
    {"name": "access", "description": "Tenants, tokens, the audit log."},
    {"name": "operations", "description": "For operators: health, metrics, pins, garbage."},
]


def describe(app: FastAPI, *, secured: bool) -> dict[str, Any]:
    """The document, made once an app; `secured` when requests need a token."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=TAGS,
            servers=[{"url": "/"}],
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        _add_schemas(document)
        for path, operations in document["paths"].items():
            for method in METHODS & operations.keys():
                guarded = secured and path not in OPEN
                _complete(operations[method], method, path, guarded=guarded)
        if secured:
            document["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
        app.openapi_schema = document
    return app.openapi_schema


def _complete(operation: dict[str, Any], method: str, path: str, *, guarded: bool) -> None:
    """Add an operation's errors, examples and need of a token."""
    responses = operation["responses"]
    takes = bool(operation.get("parameters") or operation.get("requestBody"))
    responses.pop("422", None)
    problems = refusals(method, path, takes=takes, guarded=guarded, problem=PROBLEM_SCHEMA)
    responses |= problems | {"default": PROBLEM}
    operation["security"] = [{"token": []}] if guarded else []
    if (answer := ANSWERS.get((method, path))) is not None:
        for status, response in responses.items():
            if status.startswith("2") and JSON_TYPE in response.get("content", {}):
                response["content"][JSON_TYPE]["example"] = answer
    if (body := BODIES.get((method, path))) is not None:
        _add_body(operation["requestBody"]["content"], body)


def _add_body(content: dict[str, Any], body: dict[str, Any]) -> None:
    if JSON_TYPE in content:
        content[JSON_TYPE] = {**content[JSON_TYPE], "example": body}
    if FORM_TYPE in content:
        request = body.get("request", {name: body[name] for name in body.keys() - {"model"}})
        form = {"model": ["(the file)"], "request": request}
        content[FORM_TYPE] = {**content[FORM_TYPE], "example": form}


def _add_schemas(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (ProblemOut, EventOut, RequestIn, JobIn):
        own = model.model_json_schema(ref_template=SCHEMAS + "{model}")
        schemas.update(own.pop("$defs", {}))
        schemas[model.__name__] = own
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
