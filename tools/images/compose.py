"""Reads docker-compose.yml: what each service runs, as whom, with which limits."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
COMPOSE = ROOT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Health:
    """A health check: a command, and how often it is tried."""

    test: tuple[str, ...]
    interval: float
    retries: int


@dataclass(frozen=True)
class Service:
    """One service of the file, with nothing left to interpolate.

    dockerfile: what the image is built from; None for a server's published image.
    tmpfs: empty file systems by path, with their options.
    volumes: names of volumes by path.
    command, health: None where the image says so.
    """

    name: str
    image: str
    dockerfile: str | None
    user: str
    command: tuple[str, ...] | None
    environment: Mapping[str, str]
    tmpfs: Mapping[str, str]
    volumes: Mapping[str, str]
    memory: int
    pids: int
    after: tuple[str, ...]
    health: Health | None
    grace: float


def services(environment: Mapping[str, str], path: Path = COMPOSE) -> list[Service]:
    """Every service of the file, each behind those that it waits for; raises KeyError for a
    variable that must be set.
    """
    document = _filled(yaml.safe_load(path.read_text()), environment)
    results = {name: _service(name, text) for name, text in document["services"].items()}
    return list(_in_order(results))


def _filled(node: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {key: _filled(value, environment) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, environment) for value in node]
    return interpolate(node, environment) if isinstance(node, str) else node


def interpolate(text: str, environment: Mapping[str, str]) -> str:
    """The text with `${NAME}`, `${NAME:-default}` and `${NAME:?message}` replaced."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if result := environment.get(name):
            return result
        if kind == "-":
            return str(rest)
        raise KeyError(rest or name)

    return _VARIABLE.sub(value, text)


def _service(name: str, text: dict[str, Any]) -> Service:
    return Service(
        name=name,
        image=text["image"],
        dockerfile=text["build"]["dockerfile"] if "build" in text else None,
        user=text["user"],
        command=tuple(text["command"]) if "command" in text else None,
        environment={key: str(value) for key, value in text.get("environment", {}).items()},
        tmpfs=dict(_parted(each) for each in text.get("tmpfs", [])),
        volumes={path: volume for volume, path in map(_parted, text.get("volumes", []))},
        memory=_bytes(text["mem_limit"]),
        pids=text["pids_limit"],
        after=tuple(text.get("depends_on", {})),
        health=_health(text["healthcheck"]) if "healthcheck" in text else None,
        grace=_seconds(text.get("stop_grace_period", "10s")),
    )


def _parted(text: str) -> tuple[str, str]:
    first, _, rest = text.partition(":")
    return first, rest


def _bytes(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def _health(text: dict[str, Any]) -> Health:
    kind, *command = text["test"]
    if kind != "CMD":
        raise ValueError(f"a health check of kind {kind} is not read")
    return Health(tuple(command), _seconds(text["interval"]), text["retries"])


def _in_order(result: dict[str, Service]) -> Iterator[Service]:
    done: set[str] = set()
    while len(done) < len(result):
        ready = [
            service
            for name, service in result.items()
            if name not in done and done.issuperset(service.after)
        ]
        if not ready:
            raise ValueError(f"services wait for each other: {sorted(result.keys() - done)}")
        yield from ready
        done |= {service.name for service in ready}
