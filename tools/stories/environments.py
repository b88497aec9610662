"""Virtual environments that install the wheels of this tree, and a service that runs in one."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_S = 60
_FOREIGN = ("RELAXD_", "PYTHON", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Environment:
    """A virtual environment; `wheels` is the folder that stands for the package index's copy of
    relaxd.
    """

    folder: Path
    wheels: Path

    @classmethod
    def fresh(cls, folder: Path, wheels: Path) -> "Environment":
        """An environment with nothing but pip."""
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        return cls(folder, wheels)

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """Those of a shell in which the environment is active, without this tree's own."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        result = f"{self.wheels} {plain.get('PIP_FIND_LINKS', '')}".strip()
        path = f"{self.folder / 'bin'}{os.pathsep}{plain['PATH']}"
        return {**plain, "PATH": path, "PIP_FIND_LINKS": result, "PIP_QUIET": "2", **more}


@contextmanager
def serve(environment: Environment, folder: Path) -> Iterator[str]:
    """The URL of `relaxd serve` of the environment, which keeps its data in `folder`."""
    port = folder / "port"
    command = ["relaxd", "serve", "--port", "0", "--port-file", str(port)]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(folder / "data")],
            cwd=folder,
            env=environment.variables({}),
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + _START_S
        while not (port.exists() and port.read_text().strip()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service does not start: {(folder / 'log.txt').read_text()}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text().strip()}"
    finally:
        process.terminate()
        process.wait(30)
