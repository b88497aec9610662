"""Promises of the images and the compose file: no root, health checks, read-only roots, an API
without a compiler.
"""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from tests.support.locks import pins
from tools.images.compose import services

ROOT = Path(__file__).parent.parent.parent
IMAGES = sorted((ROOT / "docker").glob("*.Dockerfile"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SECRETS = {"POSTGRES_PASSWORD": "one", "RELAXD_TOKEN": "two"}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    lines = dockerfile.read_text().replace("\\\n", " ").splitlines()
    return [
        (word.upper(), rest.strip())
        for word, _, rest in (
            line.partition(" ") for line in lines if line and not line.startswith("#")
        )
    ]


def last_stage(dockerfile: Path) -> list[tuple[str, str]]:
    result = instructions(dockerfile)
    return result[max(index for index, (word, _) in enumerate(result) if word == "FROM") :]


def base_of(dockerfile: Path) -> str:
    """The image that the stages start from, unless a build names another."""
    word, text = instructions(dockerfile)[0]
    assert word == "ARG"
    return text.removeprefix("PYTHON=")


def parse_volumes(volume: str) -> set[str]:
    return set(json.loads(volume)) if volume.startswith("[") else {volume}


def versions(file: str) -> dict[str, str]:
    return dict(pin.split("==", 1) for pin in pins(file))


def test_there_is_an_image_for_the_api_and_one_for_workers() -> None:
    assert [path.name for path in IMAGES] == ["api.Dockerfile", "worker.Dockerfile"]


@pytest.mark.parametrize("dockerfile", IMAGES, ids=lambda path: path.stem)
def test_an_image_runs_without_root_and_says_how_it_is(dockerfile: Path) -> None:
    stage = last_stage(dockerfile)
    words = dict(stage)
    assert int(words["USER"].split(":")[0]) > 0
    assert "CMD" in words["HEALTHCHECK"]
    name = dockerfile.stem
    assert parse_volumes(words["VOLUME"]) == {
        mount.split(":")[1] for mount in SERVICES[name]["volumes"]
    }
    order = [word for word, _ in stage]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert "RUN" not in order[order.index("USER") :]


@pytest.mark.parametrize("dockerfile", IMAGES, ids=lambda path: path.stem)
def test_bases_are_pinned_and_what_is_copied_reaches_the_build(dockerfile: Path) -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    base = base_of(dockerfile)
    assert re.fullmatch(r"python:3\.\d+\.\d+-[a-z-]+@sha256:[0-9a-f]{64}", base), f"{base} moves"
    for word, rest in instructions(dockerfile):
        if word == "FROM":
            assert rest.split()[0] == "$PYTHON"
        if word == "COPY" and "--from" not in rest:
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), source
                reaching = {f"!{source}", f"!{source.split('/')[0]}"}
                assert reaching & set(ignore), f"{source} is kept from the build"


@pytest.mark.parametrize("name", SERVICES)
def test_a_published_image_is_named_by_its_digest(name: str) -> None:
    if "build" not in SERVICES[name]:
        image = SERVICES[name]["image"]
        assert re.fullmatch(r"[a-z]+:[0-9.]+-[a-z]+@sha256:[0-9a-f]{64}", image), f"{image} moves"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_read_only_root_no_privileges_and_a_health_check(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["user"] not in ("", "0", "root")
    built = service.get("build")
    assert "healthcheck" in service or "HEALTHCHECK" in dict(last_stage(ROOT / built["dockerfile"]))


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_keeps_lies_in_a_named_volume(name: str) -> None:
    for mount in SERVICES[name].get("volumes", []):
        source = mount.split(":")[0]
        assert source in COMPOSE["volumes"], f"{mount} is not a named volume"
    assert {"cache", "data", "jobs"} == set(COMPOSE["volumes"])


def test_only_the_api_is_reached_from_outside() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["api"]
    assert COMPOSE["networks"]["back"]["internal"] is True
    assert [name for name, service in SERVICES.items() if "front" in service["networks"]] == ["api"]


def test_the_api_waits_for_healthy_servers() -> None:
    for name in ("api", "worker"):
        waits = SERVICES[name]["depends_on"]
        assert {
            server: waits[server]["condition"] for server in ("postgres", "redis")
        } == dict.fromkeys(("postgres", "redis"), "service_healthy")


@pytest.mark.parametrize("name", SERVICES)
def test_memory_and_processes_have_limits(name: str) -> None:
    service = SERVICES[name]
    assert service["pids_limit"] <= 2048
    assert service["mem_limit"].endswith(("m", "g"))


def test_a_build_reaches_its_own_memory_limit_before_its_worker_does() -> None:
    worker = next(each for each in services(SECRETS) if each.name == "worker")
    assert int(worker.environment["RELAXD_MEMORY_MB"]) << 20 < worker.memory


def test_only_workers_mount_the_linkers_cache() -> None:
    mounts = {
        name: [mount for mount in service.get("volumes", []) if mount.startswith("cache:")]
        for name, service in SERVICES.items()
    }
    environment = dict(last_stage(ROOT / "docker/worker.Dockerfile"))["ENV"]
    assert "RELAXD_CACHE_DIR=/var/cache/relaxd" in environment.split()
    assert {name for name, result in mounts.items() if result} == {"worker"}
    assert mounts["worker"] == ["cache:/var/cache/relaxd"]


@pytest.mark.parametrize("dockerfile", IMAGES, ids=lambda path: path.stem)
def test_labels_say_what_an_image_is_and_where_its_bill_of_materials_lies(dockerfile: Path) -> None:
    stage = last_stage(dockerfile)
    labels = dict(text.split("=", 1) for text in shlex.split(dict(stage)["LABEL"]))
    assert labels["org.opencontainers.image.title"] == f"relaxd-{dockerfile.stem}"
    assert labels["org.opencontainers.image.version"] == VERSION
    name = base_of(dockerfile).partition("@")[0]
    assert labels["org.opencontainers.image.base.name"] == name
    assert SERVICES[dockerfile.stem]["image"] == f"relaxd-{dockerfile.stem}:{VERSION}"
    (created,) = [
        rest for word, rest in instructions(dockerfile) if "image_sbom.py relaxd-" in rest
    ]
    assert created.endswith(f"> {labels['org.relaxd.sbom']}")
    assert "pip uninstall --yes --quiet setuptools pip" in created


def test_the_packages_of_the_api_are_within_their_budget() -> None:
    """The image may have 300 MB with its base, which takes about 160 of them."""
    # async-timeout is for older Pythons alone.
    packages = versions("api.txt").keys() - {"setuptools", "async-timeout"}
    files = {
        Path(str(file.locate())) for name in packages for file in distribution(name).files or []
    }
    there = [path for path in files if path.suffix != ".pyc" and path.exists()]
    assert 40e6 < sum(path.stat().st_size for path in there) < 110e6


def test_the_api_image_holds_no_compiler() -> None:
    compilers = {
        "apache-tvm",
        "apache-tvm-ffi",
        "torch",
        "onnx",
        "onnxruntime",
        "numpy",
        "ziglang",
        "transformers",
    }
    assert not compilers & versions("api.txt").keys()
    assert {"apache-tvm", "onnx", "ziglang"} <= versions("worker.txt").keys()


def test_the_api_starts_with_only_its_own_packages() -> None:
    """Imports the API where every distribution that api.txt does not pin is out of reach."""
    allowed = versions("api.txt").keys() | {"relaxd", "relaxd-server"}
    absent = [
        module
        for module, owners in packages_distributions().items()
        if not any(canonicalize_name(owner) in allowed for owner in owners)
        and not module.startswith("_")
    ]
    assert "tvm" in absent
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({json.dumps(absent)})); import "
        "service.bootstrap, service.api.app, relaxd.cli.app, relaxd.client"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
