"""The OpenAPI document: FastAPI's, with problem documents and the token added."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.auth import OPEN
from service.api.problems import MEDIA_TYPE
from service.api.wire import EventOut, JobIn, ProblemOut, RequestIn

SCHEMAS = "#/components/schemas/"
METHODS = frozenset({"get", "put", "post", "delete", "patch", "head", "options"})
PROBLEM = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": {"$ref": f"{SCHEMAS}ProblemOut"}}},
}


def describe(app: FastAPI, *, secured: bool) -> dict[str, Any]:
    """The document, made once an app; `secured` when requests need a token."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _add_schemas(document)
        for path, operations in document["paths"].items():
            for operation in (operations[method] for method in METHODS & operations.keys()):
                operation["responses"].pop("422", None)
                operation["responses"].setdefault("default", PROBLEM)
                if secured and path not in OPEN:
                    operation["security"] = [{"token": []}]
        if secured:
            document["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
        app.openapi_schema = document
    return app.openapi_schema


def _add_schemas(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (ProblemOut, EventOut, RequestIn, JobIn):
        own = model.model_json_schema(ref_template=SCHEMAS + "{model}")
        schemas.update(own.pop("$defs", {}))
        schemas[model.__name__] = own
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
