import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from relaxd.cli.app import app
from relaxd.cli.console import Exit
from relaxd.client import client, transport
from relaxd.client.extras import OWN

ROOT = Path(__file__).parents[3]

COMMANDS = [
    "compile",
    "inspect",
    "families",
    "targets",
    "pull",
    "run",
    "bench",
    "serve",
    "api",
    "worker",
    "jobs",
    "jobs list",
    "jobs show",
    "jobs follow",
    "jobs logs",
    "jobs cancel",
]
NOWHERE = ["--server", "http://127.0.0.1:9"]


def commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from commands((*path, name), below)
    else:
        yield " ".join(path), command


def test_every_command_that_ends_prints_one_document_where_asked() -> None:
    results = dict(commands((), get_command(app)))
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in results.items()
    }
    without = {name for name, known in options.items() if "--json" not in known}
    assert without == {"serve", "api", "worker", "llm"}


def test_lists_of_commands_have_one_sentence_for_each() -> None:
    for name, command in commands((), get_command(app)):
        assert "\n" not in command.help.split("\n\n")[0].strip(), name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(relaxd: Any, shell: str) -> None:
    variables = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "relaxd", "--show-completion", shell],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_RELAXD_COMPLETE" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(relaxd: Any, command: str) -> None:
    ended = relaxd(*command.split(), "--help")
    assert ended.code == 0
    assert f"Usage: relaxd {command}" in ended.out


def test_help_names_the_commands_and_the_exit_codes(relaxd: Any) -> None:
    out = relaxd("--help").out
    assert all(command in out for command in COMMANDS if " " not in command)
    assert "Exit codes" in out
    assert relaxd("--version").out.startswith("relaxd ")


@pytest.mark.parametrize(
    ("arguments", "field", "says"),
    [
        (["nonesuch.onnx"], "model", "there is no file"),
        (["net.onnx", "--samples", "nonesuch.npz"], "samples", "there is no file"),
        (["net.onnx", "--dim", "n"], "dims", "--dim 'n'"),
        (["net.onnx", "--dim", "n=8:2"], "dims.n", "greater than max"),
        (["net.onnx", "--dim", "n=1", "--dim", "n=2"], "dims.n", "twice"),
        (["net.onnx", "--input", "x=int31[n]"], "inputs.x", "int31"),
        (["net.onnx", "--shape", "y=[n,"], "shapes.y", "not an integer expression"),
        (["net.onnx", "--option", "speed=11"], "options.speed", "unknown option"),
        (["net.onnx", "--option", "verify=perhaps"], "options.verify", "true or false"),
        (["net.onnx", "--target", "pdp-11"], "targets", "unknown target"),
        (["net.onnx", "--detach"], "server", "needs a server"),
    ],
)
def test_bad_declarations_are_usage_errors(
    relaxd: Any, model: str, arguments: list[str], field: str, says: str
) -> None:
    ended = relaxd("compile", *arguments)
    assert ended.code == 2
    assert says in ended.err
    assert f"field {field}" in ended.err
    error = relaxd("compile", *arguments, "--json").json["error"]
    assert error["field"] == field


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["compile", "net.onnx", "--option", "verfiy=false"], "did you mean verify? known"),
        (["compile", "net.onnx", "--target", "x86-64-v33"], "did you mean x86-64-v3"),
        (["compile", "net.onnx", "--input", "x=flaot32[n]"], "did you mean float32"),
        (["compile", "net.onnx", "--option", "x=11"], "known options"),
        (["token", "create", "t", "--scope", "admn"], "did you mean admin?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_close_ones(
    relaxd: Any, model: str, arguments: list[str], meant: str
) -> None:
    hint = relaxd(*arguments, "--json").json["error"]["hint"]
    assert hint.startswith(meant)


@pytest.mark.parametrize(
    "arguments",
    [["nonesuch"], ["compile"], ["compile", "a", "--nope"], ["jobs", "list", "--limit", "0"]],
)
def test_a_command_line_that_cannot_be_read(relaxd: Any, arguments: list[str]) -> None:
    ended = relaxd(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "Usage: relaxd" in ended.err
    if arguments != ["nonesuch"]:
        ended = relaxd(*arguments, "--json")
        assert ended.code == 2
        assert ended.json["error"]["code"] == "request.invalid"


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "list"],
        ["compile", "net.onnx"],
        ["inspect", "net.onnx"],
        ["pull", "job"],
        ["targets"],
    ],
)
def test_no_server(
    relaxd: Any, model: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.01)
    ended = relaxd(*arguments, *NOWHERE)
    assert ended.code == 3
    assert "no answer from http://127.0.0.1:9: " in ended.err
    assert "Errno" not in ended.err
    assert relaxd(*arguments, *NOWHERE, "--json").json["error"]["code"] == "server.unreachable"


@pytest.mark.parametrize("arguments", [("show", "mistyped"), ("diff", "mistyped", "out")])
def test_a_mistyped_path_is_named_where_no_service_answers(
    relaxd: Any, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(client, "DEFAULT_URL", NOWHERE[1])
    ended = relaxd(*arguments)
    assert ended.code == 3
    assert "no folder or tar mistyped here, and no answer from http://127.0.0.1:9" in ended.err
    assert "path of a bundle" in ended.err
    assert "mistyped" not in relaxd(*arguments, *NOWHERE).err


@pytest.mark.parametrize("command", ["run", "bench", "families"])
@pytest.mark.parametrize("empty", [False, True])
def test_a_bundle_that_is_not_there_is_a_usage_error(
    relaxd: Any, command: str, empty: bool
) -> None:
    if empty:
        Path("nonesuch").mkdir()
    ended = relaxd(command, "nonesuch")
    assert ended.code == 2
    assert "error: " in ended.err


HINTED = re.compile(r"""(?:relaxd\[|install_hint\(["'])([a-z,]+)["'\]]""")


def test_hints_name_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    sources = [path for name in OWN for path in (ROOT / name).rglob("*.py")]
    named = {
        extra
        for path in (*pages, *sources)
        for result in HINTED.findall(path.read_text())
        for extra in result.split(",")
    }
    cli = "".join(path.read_text() for path in (ROOT / "relaxd/cli").glob("*.py"))
    named |= set(re.findall(r'extra="([a-z]+)"', cli))
    code = "".join(path.read_text() for path in sources)
    named |= set(re.findall(r'install_hint\("([a-z]+)"\)', code))
    assert {"compiler", "server", "torchscript", "trust"} <= named
    assert named <= extras.keys()


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    """Whoever took the name there would run code where the token of a service is."""
    pages = [
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("ci/*"),
        *ROOT.glob("wheels/*/*.md"),
    ]
    sources = [path for name in OWN for path in (ROOT / name).rglob("*.py")]
    by_name = re.compile(r"(?:pip|npm|uv|pipx) (?:install|i|add) [\"'`]?relaxd(?!-)\b")
    assert by_name.search("pip install 'relaxd[server]'")
    assert [path for path in (*pages, *sources) if by_name.search(path.read_text())] == []


@pytest.mark.parametrize("page", ["README.md", "docs/reference/cli.md"])
def test_pages_name_every_exit_code(page: str) -> None:
    text = (ROOT / page).read_text().partition("Exit codes: ")[2].partition("\n")[0]
    assert [int(code) for code in re.findall(r"(?:^|, )([0-9]) ", text)] == list(Exit)


def test_targets_of_this_machine(relaxd: Any) -> None:
    assert "x86-64-v3" in relaxd("targets").out
    listed = {target["name"]: target for target in relaxd("targets", "--json").json["targets"]}
    lacking = (listed["rocm"]["device"] or {})["lacking"]
    assert lacking is None or f"rocm: {lacking}" in relaxd("targets").out


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    """A light installation: the packages of the server and the compiler cannot be imported."""
    code = (
        "import sys; sys.modules.update({name: None for name in ('service', 'compiler')}); "
        "from relaxd.cli import main; main()"
    )
    for arguments, extra in ((["serve"], "server"), (["targets"], "compiler")):
        command = [sys.executable, "-c", code, *arguments]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert ended.returncode == 1
        assert (
            f"pip install './relaxd-VERSION-py3-none-any.whl[{extra}]' ./relaxd_server-"
            in ended.stderr
        )
        assert "Traceback" not in ended.stderr
