"""The pins are what pyproject.toml asks for, whole and of this environment."""

import re
import tomllib
from importlib.metadata import requires
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.support.locks import entries, pins
from tools.lock import COMPLETE, LOCKS, MODELS, ROOT, UNHASHED, closure, lock

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


HASHED = [*LOCKS, f"{MODELS}.txt"]


@pytest.mark.parametrize("file", LOCKS)
def test_the_lock_is_up_to_date(file: str) -> None:
    assert lock(PROJECT, file).splitlines() == pins(file), "run `make lock`"


def test_models_are_locked_as_they_are_asked_for() -> None:
    asked = (ROOT / "requirements" / f"{MODELS}.in").read_text().splitlines()
    names = [Requirement(line) for line in asked if not line.startswith("#")]
    assert {(one.name, str(one.specifier)) for one in names} == {
        (one.name, str(one.specifier)) for one in map(Requirement, pins(f"{MODELS}.txt"))
    }


@pytest.mark.parametrize("file", [*HASHED, *UNHASHED.values()])
def test_every_line_pins_one_version(file: str) -> None:
    for line in pins(file):
        specifiers = list(Requirement(line).specifier)
        assert [specifier.operator for specifier in specifiers] == ["=="], line


@pytest.mark.parametrize("file", HASHED)
def test_every_pin_has_the_hashes_of_its_files(file: str) -> None:
    for pin, hashes in entries(file):
        assert hashes, pin
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), pin


def test_whatever_installs_the_locks_requires_their_hashes() -> None:
    for path in (ROOT / "tools/env.py", *(ROOT / "docker").glob("*.Dockerfile")):
        text = path.read_text()
        for file in HASHED:
            for line in text.splitlines():
                if f"requirements/{file}" in line and "pip" in line:
                    assert "--require-hashes" in line, f"{path.name}: {line}"


def test_extras_are_followed_and_what_is_left_out_takes_its_own_along() -> None:
    project: dict[str, Any] = {
        "name": "own",
        "dependencies": ["rich"],
        "optional-dependencies": {"all": ["own[test]"], "test": ["pytest"]},
    }
    assert {"rich", "pygments", "pytest", "pluggy"} <= closure(project, ("all",), set())
    assert closure(project, (), {"rich"}) == set()


@pytest.mark.parametrize("file", sorted(COMPLETE))
def test_redis_has_what_it_needs_on_the_python_of_debian_12(file: str) -> None:
    pinned = {Requirement(line).name: Requirement(line) for line in pins(file)}
    debian = {"python_version": "3.11", "python_full_version": "3.11.2"}
    lacking = [
        text
        for text in requires("redis") or []
        if (needed := Requirement(text)).marker is not None
        and "extra" not in str(needed.marker)
        and needed.marker.evaluate(debian)
        and needed.name not in pinned
    ]
    assert "redis" in pinned
    assert lacking == []
    marker = pinned["async-timeout"].marker
    assert marker is not None
    assert marker.evaluate(debian)
    assert not marker.evaluate({**debian, "python_full_version": "3.11.3"})


def test_what_is_pinned_satisfies_the_project() -> None:
    versions = {
        Requirement(line).name: next(iter(Requirement(line).specifier)).version
        for file in ("dev.txt", *UNHASHED.values())
        for line in pins(file)
    }
    # The CUDA compiler is no part of the development environment, and pinned where it is asked for.
    extras = [texts for extra, texts in PROJECT["optional-dependencies"].items() if extra != "cuda"]
    for text in [*PROJECT["dependencies"], *(text for texts in extras for text in texts)]:
        wanted = Requirement(text)
        if wanted.name != PROJECT["name"]:
            assert wanted.specifier.contains(
                versions[wanted.name.lower().replace("_", "-")], prereleases=True
            ), text
