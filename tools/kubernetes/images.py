"""Checks pods against the Dockerfiles of their images: programs, paths, and where they write."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[2]
BASE = ("/bin", "/dev", "/etc", "/proc", "/usr")
"""Folders of the base image whose content is not known here."""
BASE_PROGRAMS = {"cp", "sh", "sleep"}
PROGRAMS = {"python", "relaxd"}
WRITTEN = ("RELAXD_CACHE_DIR", "RELAXD_DATA_DIR", "TMPDIR")
"""Variables that name folders into which the processes write."""


@dataclass(frozen=True)
class Image:
    """The result of a Dockerfile's last stage: empty folders, copied trees, variables."""

    folders: frozenset[str]
    trees: frozenset[str]
    environment: Mapping[str, str]

    def has(self, path: str) -> bool:
        """True unless the path is surely not there; what lies inside a copied tree is not known."""
        within = (*self.trees, *BASE)
        inside = any(PurePosixPath(path).is_relative_to(tree) for tree in within)
        return inside or any(PurePosixPath(folder).is_relative_to(path) for folder in self.folders)


@cache
def read_image(name: str) -> Image | None:
    """The image of a name such as `relaxd-api:0.1.0`; None for one that is not built here."""
    file = ROOT / "docker" / f"{name.partition(':')[0].removeprefix('relaxd-')}.Dockerfile"
    if not file.exists():
        return None
    last = file.read_text().replace("\\\n", " ").rpartition("\nFROM ")[2].splitlines()
    lines = [line.partition(" ") for line in last if not line.startswith("#")]
    folders: set[str] = set()
    trees: set[str] = set()
    environment: dict[str, str] = {}
    for word, _, rest in lines:
        if word == "RUN":
            commands = (shlex.split(each) for each in rest.split("&&"))
            installs = [part for part in commands if "--directory" in part]
            folders |= {path for part in installs for path in part if path.startswith("/")}
        elif word == "COPY":
            trees.add(shlex.split(rest)[-1])
        elif word == "ENV":
            environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
    return Image(frozenset(folders), frozenset(trees), environment)


def image_mistakes(pod: Mapping[str, Any], shared: Mapping[str, str]) -> Iterator[str]:
    """List what containers of a pod take from their images and is not there, and folders that they
    write into and that no volume holds.

    shared: the values of the pod's ConfigMaps.
    """
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        image = read_image(container["image"])
        if image is None and "/" in container["image"]:
            continue  # of a registry, made elsewhere
        if image is None:
            yield f"{container['name']}: no Dockerfile makes the image {container['image']}"
        else:
            for mistake in (*_absent(container, image), *_unwritable(container, image, shared)):
                yield f"{container['name']}: {mistake}"


def _absent(container: Mapping[str, Any], image: Image) -> Iterator[str]:
    words = [*container.get("command", ()), *container.get("args", ())]
    mounted = _mounts(container)
    for word in words:
        for path in re.findall(r"(?<![\w.:/])/[\w./-]+", word):
            if not _is_below(path, mounted) and not image.has(path):
                yield f"{path} is not in the image {container['image']}"
    for command in _commands(container):
        if command[0] not in PROGRAMS | BASE_PROGRAMS and not command[0].startswith("/"):
            yield f"no program {command[0]} in the image {container['image']}"
        if command[:2] == ["python", "-m"] and not _has_module(command[2]):
            yield f"no module {command[2]} in the image {container['image']}"


def _commands(container: Mapping[str, Any]) -> Iterator[list[str]]:
    if command := container.get("command"):
        yield command
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if "exec" in container.get(probe, {}):
            yield container[probe]["exec"]["command"]
    for hook in container.get("lifecycle", {}).values():
        yield hook["exec"]["command"]


def _has_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def _unwritable(
    container: Mapping[str, Any], image: Image, shared: Mapping[str, str]
) -> Iterator[str]:
    if not container["securityContext"].get("readOnlyRootFilesystem"):
        return
    own = {each["name"]: each["value"] for each in container.get("env", ()) if "value" in each}
    values = {**image.environment, **(shared if "envFrom" in container else {}), **own}
    for name in WRITTEN:
        if name in values and not _is_below(values[name], _mounts(container)):
            yield f"{name}={values[name]} is on the read-only root: mount a volume there"


def _mounts(container: Mapping[str, Any]) -> list[str]:
    return [mount["mountPath"] for mount in container.get("volumeMounts", ())]


def _is_below(path: str, mounted: list[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(mount) for mount in mounted)
