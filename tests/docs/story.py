"""Runs a page's blocks in their order, in one folder, against one service, as a reader would."""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from relaxd.cli.app import app
from relaxd.client import Client
from tests.docs.blocks import ROOT, SHELL, Block, Command, Kind
from tests.docs.static import commands_in
from tests.e2e.deployment import Deployment

URL = "http://127.0.0.1:8484"
TOKEN = "of-the-pages"
_HERE = {"compile", "inspect", "families", "targets", "ci", "run", "bench"}
"""Commands that ask no service unless they are told to."""

_BUILT_IN = {"cd", "export"}
_SHELL = re.compile(r"[|&;<>$`(]|^[A-Z_]+=|^(?!relaxd )")
_DIGEST = r"sha256:[0-9a-f]*(?:\.\.\.|[0-9a-f]{60})"
_STANDS_FOR = re.compile(rf"\bJOB\b|\bKEY_|\bDIR\b|{_DIGEST}")


@dataclass
class Story:
    """A page's folder, the names that its Python has made, and the service that it talks to."""

    folder: Path
    service: Deployment
    stack: ExitStack
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def tell(self, block: Block) -> None:
        """Runs the block; raises AssertionError where it does not do what the page says."""
        if before := block.marks.get(Kind.BEFORE):
            self._bash(before, 0, str(block))
        if block.info:
            Path(block.info).write_text(block.body)
        elif block.language in SHELL:
            *most, last = block.commands
            for command in most:
                self._run(command, 0, block)
            self._run(last, int(block.marks.get(Kind.FAILS, 0)), block)
        else:
            os.environ["RELAXD_SERVER"] = self.service.url
            exec(compile(self._filled(block.body), str(block), "exec"), self.names)

    def close(self) -> None:
        """Ends the connections that the page's Python opened."""
        for value in self.names.values():
            if isinstance(value, Client):
                value.close()

    def _run(self, command: Command, code: int, block: Block) -> None:
        line = self._filled(command.line)
        if served := re.fullmatch(r"((?:[A-Z_]+=\S+ )*)relaxd serve\b.*", _bare(line)):
            self._serve(served[1])
            message = f"relaxd is ready at {self.service.url} (1 worker, data in {self.folder})"
        elif _SHELL.search(_bare(line)):
            message = self._bash(line, code, f"{block}: {line}")
        else:
            message = self._in_process(
                shlex.split(line, comments=True)[1:], code, f"{block}: {line}"
            )
        missing = list(command.missing_lines(message))
        assert not missing, f"{block}: {line} does not print {missing[0]!r} there, but:\n{message}"

    def _serve(self, variables: str) -> None:
        """A service with settings of its own lasts as long as the page."""
        if not variables:
            return
        settings = dict(text.split("=", 1) for text in variables.split())
        for name, text in settings.items():
            if (self.folder / text).is_file():
                settings[name] = str(self.folder / text)
        folder = self.folder.with_name("served")
        folder.mkdir()
        served = Deployment.start_embedded(folder, RELAXD_TOKEN=TOKEN, **settings)
        self.service = self.stack.enter_context(served)

    def _in_process(self, arguments: list[str], code: int, about: str) -> str:
        os.environ.pop("RELAXD_SERVER", None)
        if arguments[0] not in _HERE:
            os.environ["RELAXD_SERVER"] = self.service.url
        ended = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"}).invoke(
            app, arguments, prog_name="relaxd"
        )
        if ended.exception and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        assert ended.exit_code == code, f"{about}: {ended.exit_code}: {ended.output}"
        return ended.output

    def _bash(self, script: str, code: int, about: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._filled(script)],
            cwd=self.folder,
            env={**os.environ, "COLUMNS": "100", **self._server_of(commands_in(script))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{about}: {done.returncode}: {done.stdout}"
        return done.stdout

    def _server_of(self, commands: Iterable[list[str]]) -> dict[str, str]:
        """The service's URL for commands that ask the usual one."""
        asked = (words[1] for words in commands if words[0] == "relaxd" and len(words) > 1)
        return {"RELAXD_SERVER": self.service.url} if {*asked} - _HERE else {}

    def _filled(self, text: str) -> str:
        """The text with what stands for a job, a digest or a key replaced by one there is."""
        text = text.replace(URL, self.service.url).replace("/srv/relaxd", self._data)
        text = text.replace(urlsplit(URL).netloc, urlsplit(self.service.url).netloc)
        if not _STANDS_FOR.search(text):
            return text
        with Client(self.service.url, token=TOKEN) as client:
            if not (jobs := client.jobs(state="succeeded")):
                jobs = [client.compile(self.folder / "rows.onnx").wait()]
        build = jobs[0].builds[0]
        text = re.sub(_DIGEST, build["artifact"]["digest"], text)
        text = re.sub(r"\bJOB\b", jobs[0].id, text).replace("KEY_A", build["action_key"])
        text = text.replace("KEY_B", jobs[-1].builds[0]["action_key"])
        return re.sub(r"(?<=--data-dir )DIR\b", self._data, text)

    @property
    def _data(self) -> str:
        return str(self.service.folder / "data")


def _bare(line: str) -> str:
    """A line without its comment and without what is quoted."""
    return re.sub(r"'[^']*'|\"[^\"$]*\"", "_", re.sub(r"\s+#.*$", "", line, flags=re.MULTILINE))


def shims(folder: Path, url: str) -> None:
    """Puts `relaxd` and `python` of these tests, `ls` as on a terminal, and logins into the
    folder.
    """
    folder.mkdir(exist_ok=True)
    ours = {"relaxd": f"{sys.executable} -P -m relaxd", "python": f"{sys.executable} -P"}
    for name, program in {**ours, "ls": f"{shutil.which('ls')} -C"}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (folder / name).chmod(0o755)
    login = base64.b64encode(f"relaxd:{TOKEN}".encode()).decode()
    logins = {"auths": {urlsplit(url).netloc: {"auth": login}}}
    (folder / "auth.json").write_text(json.dumps(logins))
    (folder / ".curlrc").write_text(f'header = "Authorization: Bearer {TOKEN}"\n')


def environment(monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    """The environment of a page's shell and commands."""
    for name in list(os.environ):
        if name.startswith("RELAXD_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RELAXD_TOKEN", TOKEN)
    monkeypatch.setenv("RELAXD_SERVER", "")
    monkeypatch.setenv("CURL_HOME", str(programs))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(programs / "auth.json"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")


def lacking(blocks: Iterable[Block]) -> str | None:
    """A program that the blocks call and this machine has not."""
    called = (
        words[0]
        for block in blocks
        if block.language in SHELL
        for command in block.commands
        for words in commands_in(command.line)
    )
    return next((name for name in called if name not in _BUILT_IN and not shutil.which(name)), None)
