import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from relaxd.cli.app import app
from tests.service.live import Live, live


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)


Relaxd = Callable[..., Ended]


@pytest.fixture
def relaxd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Relaxd:
    """Runs a command in an empty folder."""
    for name in ("RELAXD_SERVER", "RELAXD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, columns: int = 200) -> Ended:
        ended = CliRunner(env={"COLUMNS": str(columns), "TERM": "dumb"}).invoke(
            app, list(arguments), prog_name="relaxd"
        )
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    return run


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("api"), lease_s=600) as running:
        running.announce()
        yield running


@pytest.fixture
def served(relaxd: Relaxd, api: Live, monkeypatch: pytest.MonkeyPatch) -> Relaxd:
    """As `relaxd`, with RELAXD_SERVER set."""
    monkeypatch.setenv("RELAXD_SERVER", api.url)
    return relaxd


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "net.onnx").write_bytes(b"a model")
    return "net.onnx"
