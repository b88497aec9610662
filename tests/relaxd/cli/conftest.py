import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from compiler.isolation.messages import CompileJob
from relaxd.cli.app import app
from tests.service.fakes import write_bundle
from tests.service.live import Live, live
from tests.support.bundles import seal

PROFILE: dict[str, Any] = {
    "measured": True,
    "machine": {"processor": "A Processor", "threads": 2, "load_average": [0.5, 0.4, 0.3]},
    "load_ms": 41.0,
    "points": [
        {
            "label": "max",
            "dims": {"n": 8},
            "median_ms": 2.0,
            "p25_ms": 1.9,
            "p75_ms": 2.2,
            "min_ms": 1.8,
            "runs": 50,
            "reference": {"median_ms": 3.0, "engine": "onnxruntime 1.31.1"},
        }
    ],
    "operators": {
        "label": "max",
        "dims": {"n": 8},
        "rows": [{"name": "fused_matmul", "calls": 1, "ms": 1.9, "share": 0.95}],
    },
}
KERNELS = [
    {"name": "fused_matmul", "family": "matmul", "tile": "6x16", "nodes": ["a<b>", "[bold]c"]}
]


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
    """Run `relaxd` with RELAXD_SERVER set."""
    monkeypatch.setenv("RELAXD_SERVER", api.url)
    return relaxd


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "net.onnx").write_bytes(b"a model")
    return "net.onnx"


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A bundle with a profile, and notes of its kernel."""
    folder = tmp_path / "bundle"
    (tmp_path / "net.onnx").write_bytes(b"a model")
    write_bundle(CompileJob(str(tmp_path / "net.onnx"), {}, "native", str(folder), "net"), folder)
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    seal(folder, "kernels.json", {"kernels": KERNELS})
    return folder
