"""Builds the images and runs them: `python -m tools.images`, as root, with buildah, mmdebstrap,
bubblewrap, Redis and PostgreSQL of Debian.
"""

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.images.building import BASE, Builder
from tools.images.checks import faults, size
from tools.images.compose import ROOT, Service, services
from tools.images.deployment import ROOTS, Deployment
from tools.images.story import tell

PROGRAMS = {
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "bwrap": "bubblewrap",
    "redis-server": "redis-server",
    "/usr/lib/postgresql": "postgresql",
}
_INSIDE = "RELAXD_IMAGES_INSIDE"


def main() -> int:
    """Exit status 0 if the images are as they must be, and the story holds."""
    parser = argparse.ArgumentParser(prog="python -m tools.images", description=__doc__)
    parser.add_argument("--model", default="minilm", help="the model of the story")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/images", help="for layers")
    parser.add_argument("--no-build", action="store_true", help="run the images of the last time")
    arguments = parser.parse_args()
    _check_programs()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    builder = Builder(arguments.folder)
    result = services(
        {"POSTGRES_PASSWORD": secrets.token_hex(), "RELAXD_TOKEN": secrets.token_hex()}
    )
    if not arguments.no_build and _INSIDE not in os.environ:
        builder.base()
        for service in _built(result):
            builder.build(str(service.dockerfile), service.image)
    if _INSIDE not in os.environ:
        return _inside()
    return _examine(builder, _built(result)) or _run(builder, result, arguments.model)


def _check_programs() -> None:
    if os.geteuid() != 0:
        raise SystemExit("building and running images needs root: chroot, mount, users")
    missing = [
        package
        for program, package in PROGRAMS.items()
        if not (Path(program).exists() or shutil.which(program))
    ]
    if missing:
        raise SystemExit(f"apt-get install --no-install-recommends {' '.join(missing)}")


def _built(result: list[Service]) -> list[Service]:
    return [service for service in result if service.dockerfile]


def _inside() -> int:
    """Run again with mounts and a network of its own: ports are free, and nothing outside is
    reached.
    """
    command = [sys.executable, "-m", "tools.images", *sys.argv[1:]]
    entering = ["unshare", "--mount", "--net", "--propagation", "private", "--kill-child"]
    script = f'ip link set lo up; mount -t tmpfs -o mode=755 roots {ROOTS}; exec "$@"'
    environment = {**os.environ, _INSIDE: "1"}
    done = subprocess.run(
        [*entering, "--fork", "sh", "-ec", script, "sh", *command], env=environment, check=False
    )
    return done.returncode


def _examine(builder: Builder, result: list[Service]) -> int:
    wrong = 0
    container, root = builder.root(BASE)
    base = size(root)
    builder.remove(container)
    for service in result:
        container, root = builder.root(service.image)
        taken, labels = size(root), dict(builder.image(service.image).labels)
        print(f"{service.image}: {taken / 1e6:.0f} MB, {base / 1e6:.0f} of them its base's")
        for fault in faults(service.name, root, labels):
            print(f"  {fault}")
            wrong = 1
        builder.remove(container)
    return wrong


def _run(builder: Builder, result: list[Service], model: str) -> int:
    with tempfile.TemporaryDirectory(prefix="relaxd-images-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Deployment(folder, builder, result) as deployment:
            print("all services are healthy", flush=True)
            tell(deployment, model, folder)
            for each, container in deployment.running.items():
                peak, limit = container.peak(), container.spec.service.memory
                shown = "not limited here" if peak is None else f"{peak / 1e6:.0f} MB"
                print(f"  {each}: memory {shown}, limit {limit / 1e6:.0f} MB")
            late = [each for each, in_time in deployment.stop().items() if not in_time]
    print(f"ended late: {late}" if late else "  every service ended when it was asked to")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
