"""Builds images with buildah in a chroot, on a base that mmdebstrap makes under the name that the
Dockerfiles ask for.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.images.compose import ROOT, Health

BASE = "docker.io/library/python:3.11.14-slim-bookworm"
_PUBLISHED = "ca-certificates,netbase,tzdata,passwd,libstdc++6,usr-is-merged"
"""What the published base image has beyond Debian's essential packages. Without `usr-is-merged`, a
tool that merges /usr comes in its place, and all of Perl with it.
"""
_UNPUBLISHED = ("doc", "man", "info", "locale", "groff", "lintian", "linda")
"""Folders of /usr/share that it leaves out."""
_MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"
PACKAGES = f"{_PUBLISHED},python3-venv,python3-async-timeout"
_SHIM = "/usr/local/lib/stand-in"
"""Debian's Python is 3.11.2; below 3.11.3, redis needs async-timeout, which no lock file pins."""
_LENT = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
"""What pip needs of this machine to reach a package registry; no image keeps it."""


@dataclass(frozen=True)
class Image:
    """An image's configuration of its containers."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    volumes: tuple[str, ...]
    labels: Mapping[str, str]
    health: Health


class Builder:
    """Images, containers and layers in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = ["--root", folder / "store", "--runroot", folder / "run"]
        self._buildah = ["buildah", *map(str, store), "--storage-driver", "overlay"]

    def _run(self, *arguments: str, quiet: bool = True) -> str:
        done = subprocess.run(
            [*self._buildah, *arguments],
            check=True,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE if quiet else None,
        )
        return (done.stdout or "").strip()

    def base(self) -> None:
        """Make the base image once."""
        archive = self.folder / "base.tar"
        if BASE in self._names():
            return
        created = archive.with_suffix(".partial.tar")
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _UNPUBLISHED]
        shim = f"$1{_SHIM}"
        hooks = [
            "ln -s python3 $1/usr/bin/python",
            "touch $1/etc/hosts",
            f"mkdir {shim} && cp -r $1/usr/lib/python3/dist-packages/async_timeout {shim}/",
        ]
        subprocess.run(
            [
                *("mmdebstrap", "--mode=root", "--variant=essential"),
                *("--dpkgopt=force-unsafe-io", *excluded, f"--hook-dir={_MERGED}"),
                *(f"--customize-hook={hook}" for hook in hooks),
                *(f"--include={PACKAGES}", "bookworm", str(created)),
            ],
            check=True,
        )
        created.replace(archive)
        container = self._run("from", "scratch")
        self._run("add", container, str(archive), "/")
        path = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        self._run("config", "--env", path, "--env", f"PYTHONPATH={_SHIM}", container)
        self._run("commit", "--rm", container, BASE)

    def _names(self) -> set[str]:
        listed = json.loads(self._run("images", "--json") or "[]") or []
        return {name for image in listed for name in image.get("names") or []}

    def build(self, dockerfile: str, image: str) -> None:
        """Build one image from the checkout; unchanged steps are kept from the last time."""
        lent = [path for path in _LENT if Path(path).exists()]
        self._run(
            *("build", "--isolation", "chroot", "--network", "host", "--pull-never", "--layers"),
            # The OCI format has no health checks.
            *("--format", "docker", "--build-arg", f"RELAXD_REVISION={_revision()}"),
            # The published base goes by its digest, which the one made here has not.
            *("--build-arg", f"PYTHON={BASE}"),
            *(word for path in lent for word in ("--volume", f"{path}:{path}:ro")),
            *("--tag", f"localhost/{image}", "--file", dockerfile, "."),
            quiet=False,
        )

    def pack(self, program: Path, arguments: tuple[str, ...], name: str) -> None:
        """Make an image of one static program of this machine."""
        container = self._run("from", "scratch")
        self._run("copy", container, str(program), f"/{program.name}")
        entry = json.dumps([f"/{program.name}", *arguments])
        self._run("config", "--entrypoint", entry, container)
        self._run("commit", "--quiet", "--rm", container, name)

    def save(self, image: str, archive: Path, name: str) -> None:
        """Write an image into an archive under that name."""
        self._run("push", "--quiet", image, f"docker-archive:{archive}:{name}")

    def image(self, name: str) -> Image:
        """The configuration of an image that was built."""
        text = self._run("inspect", "--type", "image", f"localhost/{name}")
        return configuration(json.loads(text)["Docker"]["config"])

    def root(self, image: str) -> tuple[str, Path]:
        """A container of the image, and where its file system is mounted."""
        container = self._run(
            "from", "--pull-never", image if "/" in image else f"localhost/{image}"
        )
        return container, Path(self._run("mount", container))

    def remove(self, container: str) -> None:
        """Unmount and delete a container."""
        self._run("rm", container)


def configuration(config: Mapping[str, Any]) -> Image:
    """An image's configuration, in Docker's form."""
    health = config["Healthcheck"]
    return Image(
        command=(*config["Entrypoint"], *config["Cmd"]),
        environment=dict(text.split("=", 1) for text in config["Env"]),
        volumes=tuple(config["Volumes"]),
        labels=config["Labels"],
        health=Health(tuple(health["Test"][1:]), health["Interval"] / 1e9, health["Retries"]),
    )


def _revision() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout.strip() or "unknown"
