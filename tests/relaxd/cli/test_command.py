"""Typed errors leave every command as a short message and an exit code."""

import json

import pytest
import typer
from typer.testing import CliRunner

from compiler.errors import LinkError
from relaxd.cli.command import Command, Json
from relaxd.errors import DeclarationError, RelaxdError, ServerUnreachable

ERRORS: dict[str, tuple[RelaxdError, int]] = {
    "usage": (DeclarationError("no such dim", field="dims.n", hint="drop it"), 2),
    "failed": (LinkError("ld failed", reason="failed"), 1),
    "away": (ServerUnreachable("no answer"), 3),
}
app = typer.Typer()


@app.command(cls=Command)
def raise_typed(which: str, json: Json = False) -> None:
    raise ERRORS[which][0]


@app.command(cls=Command)
def plain(which: str) -> None:
    raise ERRORS[which][0] if which in ERRORS else KeyError(which)


@pytest.mark.parametrize("which", ERRORS)
def test_an_error_for_people(which: str) -> None:
    ended = CliRunner().invoke(app, ["raise-typed", which])
    error, code = ERRORS[which]
    assert (ended.exit_code, ended.stdout) == (code, "")
    assert f"error: {error.message}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("which", ERRORS)
def test_an_error_for_scripts(which: str) -> None:
    ended = CliRunner().invoke(app, ["raise-typed", which, "--json"])
    error, code = ERRORS[which]
    assert (ended.exit_code, ended.stderr) == (code, "")
    document = json.loads(ended.stdout)["error"]
    assert (document["code"], document["message"]) == (error.code, error.message)


def test_a_command_without_json_speaks_to_people() -> None:
    ended = CliRunner().invoke(app, ["plain", "usage"])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "hint: drop it" in ended.stderr


def test_other_errors_are_bugs_and_stay_as_they_are() -> None:
    ended = CliRunner().invoke(app, ["plain", "bug"])
    assert isinstance(ended.exception, KeyError)


@app.command(cls=Command)
def write(path: str, json: Json = False) -> None:
    with open(path, "w", buffering=1) as file:
        file.write("text\n")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/dev/full", "the disk is full"),
        ("/nonexistent/x", "/nonexistent/x"),
        ("/dev/null/x", "/dev/null/x"),
        ("/", "/"),
        ("x" * 300, "name too long"),
    ],
)
def test_a_path_that_the_system_refuses_is_a_sentence(path: str, why: str) -> None:
    ended = CliRunner().invoke(app, ["write", path])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert why in ended.stderr.lower()
    assert "Traceback" not in ended.stderr
    document = json.loads(CliRunner().invoke(app, ["write", path, "--json"]).stdout)["error"]
    assert document["code"] == "client.file"
