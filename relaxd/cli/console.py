"""Prints results and the one JSON document on stdout, everything else on stderr."""

import json
import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from relaxd.client.errors import FileTrouble, JobFailed, PullError
from relaxd.contract.failures import Failure
from relaxd.contract.states import Stage
from relaxd.errors import (
    BundleNotFound,
    DeclarationError,
    EstimateError,
    InputError,
    RelaxdError,
    ServerError,
    ServerUnreachable,
)

MAX_ITEMS = 20
_ASKED_WRONGLY = (
    BundleNotFound,
    DeclarationError,
    EstimateError,
    FileTrouble,
    InputError,
    PullError,
)
_DECLARED = frozenset(
    {"dims", "inputs", "consts", "shapes", "options", "samples", "targets", "operators"}
)


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REGRESSED = 4


def stdout() -> Console:
    """The console for results; plain if it is not a terminal."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """The console for progress, hints and errors."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def print_json(document: Any) -> None:
    """Prints the one document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")


def exit_code(error: RelaxdError) -> Exit:
    """A failed compile is 1, a request that could never work 2, no server 3."""
    if isinstance(error, ServerUnreachable):
        return Exit.UNREACHABLE
    if isinstance(error, ServerError):
        asked_wrongly = error.status < 500 and (
            "stage" not in error.problem or _is_declaration(error.problem)
        )
        return Exit.USAGE if asked_wrongly else Exit.FAILED
    if isinstance(error, _ASKED_WRONGLY) or error.code.startswith("target."):
        return Exit.USAGE
    return Exit.USAGE if _is_declaration(error_document(error)) else Exit.FAILED


def _is_declaration(failure: Mapping[str, Any]) -> bool:
    """True for a failure that another request avoids: the compiler found a declaration wrong."""
    declared = str(failure.get("field") or "").partition(".")[0] in _DECLARED
    return declared and failure.get("stage") in (Stage.LOAD, Stage.IMPORT)


def error_document(error: RelaxdError) -> dict[str, Any]:
    """The error as JSON: `code`, `message` and the details that it has."""
    document = {"message": error.message, "hint": error.hint, **error.details}
    match error:
        case ServerError(problem=problem):
            details = {
                key: value
                for key, value in problem.items()
                if key not in ("detail", "title", "status", "type", "retryable", "errors")
            }
            document |= {**details, **details.get("details", {})}
        case JobFailed(failure=failure):
            document |= {**failure, **failure.get("details", {})}
        case RelaxdError(failure=Failure() as failure):  # type: ignore[misc]
            document |= {**failure.to_json(), **failure.details}
    for nested in ("details", "failure"):
        document.pop(nested, None)
    return {"code": document.pop("code", error.code)} | {
        key: value for key, value in document.items() if value is not None
    }


def render_error(error: RelaxdError, about: str | None = None) -> Group:
    """Formats the error for people: the target, the problem, its place and the change to make."""
    document = error_document(error)
    lines = [
        Text.assemble(("error: ", "bold red"), f"{about}: " if about else "", document["message"])
    ]
    where = [
        f"{name} {document[name]}"
        for name in ("stage", "node", "op", "field")
        if document.get(name)
    ]
    if where:
        lines.append(Text("   at: " + ", ".join(where), style="dim"))
    hint = str(document.get("hint") or "")
    for items in (value for value in document.values() if isinstance(value, list)):
        # The message has the sizes of a shape, and it or the hint what is known of names.
        said = hint + document["message"]
        shown = all(isinstance(item, int) or str(item) in said for item in items)
        lines += [] if shown else _listed(items)
    if reproducer := document.get("reproducer"):
        where = reproducer["ref"] if isinstance(reproducer, dict) else reproducer
        lines.append(Text.assemble((" reproducer: ", "bold cyan"), where))
    if hint:
        lines.append(Text.assemble((" hint: ", "bold cyan"), hint))
    return Group(*lines)


def _listed(items: list[Any]) -> list[Text]:
    lines = [Text(f"     {_item(item)}") for item in items[:MAX_ITEMS]]
    return lines + (
        [Text(f"     and {len(items) - MAX_ITEMS} more", style="dim")]
        if len(items) > MAX_ITEMS
        else []
    )


def _item(item: Any) -> str:
    if isinstance(item, dict):
        return "- " + ", ".join(
            f"{key} {value}" for key, value in item.items() if value not in (None, "")
        )
    return str(item)
