"""Errors for people and scripts, and their exit codes."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from artifacts.errors import StorageFailed
from compiler.errors import ImportFailed, LinkError, UnknownTarget
from relaxd.cli.console import MAX_ITEMS, Exit, error_document, exit_code, render_error
from relaxd.client.errors import JobFailed, PullError, WaitTimeout
from relaxd.errors import (
    DeclarationError,
    ExecutionError,
    InputError,
    RelaxdError,
    ServerError,
    ServerUnreachable,
)


def problem(status: int, **members: Any) -> ServerError:
    return ServerError("m", status=status, problem={"detail": "m", "status": status, **members})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerUnreachable("m"), Exit.UNREACHABLE),
        (DeclarationError("m", field="dims.n"), Exit.USAGE),
        (InputError("m"), Exit.USAGE),
        (PullError("m"), Exit.USAGE),
        (UnknownTarget("m", reason="unknown"), Exit.USAGE),
        (problem(422), Exit.USAGE),
        (problem(422, stage="import"), Exit.FAILED),
        (problem(503), Exit.FAILED),
        (JobFailed("m", failure={}), Exit.FAILED),
        (ImportFailed("m", reason="shape"), Exit.FAILED),
        (ImportFailed("m", reason="shape", field="model"), Exit.FAILED),
        (ImportFailed("m", reason="dims", field="dims.n"), Exit.USAGE),
        (problem(422, stage="import", field="inputs.x"), Exit.USAGE),
        (JobFailed("m", failure={"stage": "import", "field": "consts.sr"}), Exit.USAGE),
        (
            JobFailed("m", failure={"stage": "verify", "field": "options.weights_error"}),
            Exit.FAILED,
        ),
        (ExecutionError("m"), Exit.FAILED),
        (StorageFailed("m"), Exit.FAILED),
        (WaitTimeout("m"), Exit.FAILED),
    ],
    ids=lambda value: getattr(value, "code", None) or value.name,
)
def test_exit_codes(error: RelaxdError, code: Exit) -> None:
    assert exit_code(error) is code


def test_a_compile_error_as_a_document() -> None:
    error = ImportFailed("no", reason="unsupported_op", node="n0", op="Foo", unsupported=["a"])
    assert error_document(error) == {
        "code": "import.unsupported_op",
        "message": "no",
        "stage": "import",
        "node": "n0",
        "op": "Foo",
        "retryable": False,
        "unsupported": ["a"],
    }


def test_a_failed_job_speaks_with_the_failures_code() -> None:
    failure = {"code": "link.failed", "stage": "link", "details": {"output": "ld: no"}}
    document = error_document(JobFailed("it failed", failure=failure))
    assert document == {
        "code": "link.failed",
        "message": "it failed",
        "stage": "link",
        "output": "ld: no",
    }


def test_a_problem_keeps_what_scripts_read() -> None:
    document = error_document(problem(404, code="job.unknown", type="urn:x", retryable=False))
    assert document == {"code": "job.unknown", "message": "m"}


def render_text(error: RelaxdError, about: str | None = None) -> str:
    out = StringIO()
    Console(file=out, width=400).print(render_error(error, about))
    return out.getvalue()


def test_people_read_what_where_and_what_to_change() -> None:
    text = render_text(LinkError("ld failed", reason="failed", hint="make room"), "aarch64")
    assert text.splitlines()[0] == "error: aarch64: ld failed"
    assert "at: stage link" in text
    assert "hint: make room" in text


def test_long_lists_are_cut() -> None:
    error = ImportFailed("no", reason="unsupported_op", unsupported=[f"n{i}" for i in range(50)])
    text = render_text(error)
    assert f"n{MAX_ITEMS - 1}\n" in text
    assert f"n{MAX_ITEMS}\n" not in text
    assert f"and {50 - MAX_ITEMS} more" in text


def test_what_the_hint_lists_is_not_listed_again() -> None:
    error = UnknownTarget("no", reason="unknown", hint="one of a1, b2", known=["a1", "b2"])
    assert render_text(error).count("a1") == 1


def test_the_sizes_of_a_shape_are_not_listed_below_the_message() -> None:
    error = InputError(
        "input 'x' must be float32[n,4], with 2 axes; got 3 axes", input="x", shape=[7, 11, 13]
    )
    assert render_text(error).splitlines() == [f"error: {error.message}"]


def test_what_the_message_names_is_not_listed_again() -> None:
    error = problem(403, code="http.forbidden", scopes=["admin"])
    error.message = error.problem["detail"] = "ci may not create tokens: that takes the scope admin"
    assert "     admin" not in render_text(error)
