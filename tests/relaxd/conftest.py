import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of small bundles: dims, ownership, constant, dtypes, narrow, vector."""
    directory = tmp_path_factory.mktemp("bundles")
    script = Path(__file__).with_name("build_bundles.py")
    done = subprocess.run(
        [sys.executable, script, directory],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def doctored(bundles: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the `dims` bundle whose manifest went through a function."""

    def doctor(change: Callable[[dict], None]) -> Path:
        copy = tmp_path / "doctored"
        shutil.copytree(bundles / "dims", copy, dirs_exist_ok=True)
        manifest = json.loads((bundles / "dims" / "manifest.json").read_text())
        change(manifest)
        (copy / "manifest.json").write_text(json.dumps(manifest))
        return copy

    return doctor


@pytest.fixture(scope="session")
def python() -> Callable[..., dict]:
    """Runs code in a process of its own, without torch; the JSON that it prints last is
    the result.
    """

    def run(code: str, *arguments: object, **env: str) -> dict:
        preamble = (
            "import sys, json, os, threading\nsys.modules['torch'] = None\nimport numpy as "
            "np\nimport relaxd\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", preamble + code, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
