"""Writes requirements/*.txt: every package that pyproject.toml's extras need, at the version
installed here, and those of models.in, with the hash of each file that the index has of it.
"""

import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
DEVELOPERS = "dev.txt"
LOCKS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "client.txt": ((), set()),
    # The API runs no bundle, and nobody types into Celery's shell there.
    "api.txt": (("api", "traces"), {"apache-tvm-ffi", "numpy", "click-repl"}),
    "worker.txt": (("server", "traces"), set()),
    DEVELOPERS: (("dev",), set()),
}
BUILD = ("setuptools",)
COMPLETE = frozenset({"api.txt", "worker.txt"})
"""The locks that are installed without a look at what their packages need."""
ANY_PYTHON = "{}.{}".format(*sys.version_info)
"""The oldest Python of this minor version, which servers may have; what developers use needs a
newer one.
"""
OLDER_PYTHON = {"redis": ("async-timeout", "==5.0.1 ; python_full_version < '3.11.3'")}
"""What a package needs on an older Python 3.11 than this one, as that of Debian 12."""
UNHASHED = {"torch": "torch.txt"}
"""Packages with a file of their own, at the version alone: the builds of torch for processors and
for CUDA are of one version, from several indexes, and need different packages.
"""
MODELS = "models"


def closure(project: dict[str, Any], extras: tuple[str, ...], without: set[str]) -> set[str]:
    """Canonical names of all that the project needs with `extras`; what only packages in `without`
    need is left out too.
    """
    own = project["name"]
    seen: set[tuple[str, str]] = set()
    queue = [(own, ""), *((own, extra) for extra in extras)]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen or name in without:
            continue
        seen.add((name, extra))
        for needed in _needs(project, name, extra):
            child = canonicalize_name(needed.name)
            queue += [(child, ""), *((child, inner) for inner in needed.extras)]
    return {name for name, _ in seen} - {own}


def _needs(project: dict[str, Any], name: str, extra: str) -> Iterator[Requirement]:
    if name == project["name"]:
        texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
        yield from map(Requirement, texts)
        return
    for needed in map(Requirement, requires(name) or []):
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            yield needed


def lock(project: dict[str, Any], file: str) -> str:
    """The pins of one lock file, one `name==version` a line."""
    extras, without = LOCKS[file]
    names = closure(project, extras, without) | set(BUILD)
    exact = {name: _pin(name) for name in names - UNHASHED.keys()}
    if file in COMPLETE:
        exact |= {name: pin for owner, (name, pin) in OLDER_PYTHON.items() if owner in names}
    return "".join(f"{name}{exact[name]}\n" for name in sorted(exact))


def _pin(name: str) -> str:
    return f"=={version(name).partition('+')[0]}"


def hash_files(pins: str, python: str = ANY_PYTHON) -> str:
    """The pins, each with the SHA-256 of its files for every platform; raises CalledProcessError
    for a version that the index does not have.
    """
    options = ("--no-deps", "--universal", "--generate-hashes", "--no-header", "--no-annotate")
    of_python = ("--python-version", python)
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", *options, *of_python, "-"]
    return subprocess.run(command, input=pins, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """Writes every lock file."""
    folder = ROOT / "requirements"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for file, (extras, _) in LOCKS.items():
        what = f"relaxd[{','.join(extras)}]" if extras else "relaxd"
        head = f"# Written by `make lock`: what {what} needs.\n"
        python = platform.python_version() if file == DEVELOPERS else ANY_PYTHON
        (folder / file).write_text(head + hash_files(lock(project, file), python))
    models = (folder / f"{MODELS}.in").read_text()
    head = f"# Written by `make lock` of {MODELS}.in.\n"
    (folder / f"{MODELS}.txt").write_text(head + hash_files(models))
    for name, file in UNHASHED.items():
        head = f"# Written by `make lock`, without hashes: tools/{Path(__file__).name} says why.\n"
        (folder / file).write_text(f"{head}{name}{_pin(name)}\n")


if __name__ == "__main__":
    main()
