"""Runs the pods of the Kubernetes manifests by podman: `python -m tools.cluster`, as root, with
buildah, podman, crun, catatonit, mmdebstrap, Redis and PostgreSQL of Debian.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.cluster.podman import Podman
from tools.cluster.story import servers, tell
from tools.images.building import Builder
from tools.images.compose import ROOT
from tools.kubernetes.checking import mistakes

PROGRAMS = ("buildah", "podman", "crun", "catatonit", "mmdebstrap", "redis-server")
IMAGES = {
    "docker/api.Dockerfile": "relaxd-api:0.1.0",
    "docker/worker.Dockerfile": "relaxd-worker:0.1.0",
}
SHOWN = """This was `podman play kube`: pods of the manifests' own specs on one machine, no cluster.
It shows images, users, read-only roots, volumes, settings, secrets, migrations, drains, `--once`.
It does not show: scheduling, Services and their affinity, probes (readiness was asked for from
outside, hooks were run by the tool), what Deployments, the autoscaler, KEDA and disruption budgets
do (the update was made by the tool as the strategy says; no eviction was asked for), network
policies, several nodes."""
_INSIDE = "RELAXD_CLUSTER_INSIDE"


def main() -> int:
    """Exit status 0 if every step holds."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/images", help="of images")
    parser.add_argument("--no-build", action="store_true", help="run the images of the last time")
    arguments = parser.parse_args()
    _check_machine()
    if _INSIDE not in os.environ:
        if not arguments.no_build:
            _build(arguments.folder)
        return _enter()
    with tempfile.TemporaryDirectory(prefix="relaxd-cluster-") as name:
        podman = Podman(arguments.folder, Path(name))
        podman.remove_all()
        with servers(podman.gateway()) as values:
            try:
                podman.make_secret("relaxd", values)
                tell(podman, Path(name))
            except BaseException:
                for pod in podman.run("pod", "ls", "--format", "{{.Name}}").split():
                    print(podman.logs(pod))
                raise
            finally:
                podman.remove_all()
    print(SHOWN)
    return 0


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise SystemExit("pods need root: mounts, networks, users")
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        raise SystemExit(f"apt-get install --no-install-recommends {' '.join(missing)}")
    if wrong := list(mistakes()):
        raise SystemExit("\n".join(wrong))


def _build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    builder = Builder(folder)
    builder.base()
    for dockerfile, image in IMAGES.items():
        builder.build(dockerfile, image)


def _enter() -> int:
    """Run again with mounts and a network of its own. Where cgroups are of both versions, the
    second is taken away: crun refuses to start beside it.
    """
    entering = ["unshare", "--mount", "--net", "--propagation", "private", "--kill-child"]
    hybrid = "if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi"
    # Without podman's memory of what runs, what an earlier run left counts as ended.
    empty = "for each in libpod netns; do mkdir -p /run/$each; mount -t tmpfs pods /run/$each; done"
    script = f'ip link set lo up; {hybrid}; {empty}; exec "$@"'
    command = [sys.executable, "-m", "tools.cluster", *sys.argv[1:]]
    environment = {**os.environ, _INSIDE: "1"}
    words = [*entering, "--fork", "sh", "-ec", script, "sh", *command]
    return subprocess.run(words, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
