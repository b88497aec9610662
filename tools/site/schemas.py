"""The reference of the documents that builds come with, as JSON Schema."""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from relaxd.contract.bundle.profile import Profile
from relaxd.contract.bundle.report import Report
from tools.site.tables import table

_DOCUMENTS = {"report": Report, "profile": Profile}
_ABOUT = {
    "report": "`GET /v1/artifacts/{digest}/report`: all that is known of a bundle.",
    "profile": "How fast a bundle is on one machine.",
}


def documents() -> dict[str, str]:
    """JSON Schema by its file's name."""
    return {
        f"schemas/{name}.schema.json": json.dumps(_schema(name), indent=2) + "\n"
        for name in _DOCUMENTS
    }


def page() -> str:
    """A section for each document, with a table for each of its parts."""
    lines = [
        "# Schemas",
        "",
        "The service's requests and answers are described by `/openapi.json`. Readers pass over "
        "keys that they do not know: releases add keys, and keep the meaning of those that are "
        "there.",
        "",
    ]
    for name in _DOCUMENTS:
        schema = _schema(name)
        lines += [f"## {name}", "", f"{_ABOUT[name]} [JSON Schema](schemas/{name}.schema.json)", ""]
        lines += [_part(schema), ""]
        for title, part in schema.get("$defs", {}).items():
            lines += [f"### {name}: {title}", "", _part(part), ""]
    return "\n".join(lines)


@cache
def _schema(name: str) -> dict[str, Any]:
    return TypeAdapter(_DOCUMENTS[name]).json_schema()


def _part(schema: dict[str, Any]) -> str:
    rows = [(f"`{name}`", _kind(one)) for name, one in schema.get("properties", {}).items()]
    about = schema.get("description", "")
    return f"{about}\n\n{table(('member', 'type'), rows)}"


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    below = schema.get("additionalProperties")
    return f"object of {_kind(below)}" if isinstance(below, dict) else kind
