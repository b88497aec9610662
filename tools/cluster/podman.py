"""Pods by `podman play kube`, which stands in for a node: it starts what a pod's spec says. What it
does not do, readiness, hooks and grace periods, is done here by the same spec.
"""

import base64
import json
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

IGNORED = ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "ports")
"""Of a container: podman runs probes by a `curl` that no image has, and hooks not at all; ports it
would take from the machine itself.
"""
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=10000:10000", "nproc=30000:30000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
"""Limits that may be set without more rights than a container of a build machine has."""


@dataclass(frozen=True)
class Ended:
    """The end of a pod that was asked to: seconds that it took, and its containers' exit codes."""

    seconds: float
    codes: tuple[int, ...]


class Podman:
    """Pods of images in the folder of `tools.images.building.Builder`."""

    def __init__(self, images: Path, folder: Path) -> None:
        self.folder = folder
        configuration = folder / "containers.conf"
        configuration.write_text(CONFIGURATION)
        store = ["--root", images / "store", "--runroot", images / "run"]
        environment = ("env", f"CONTAINERS_CONF={configuration}")
        self._podman = [*environment, "podman", *map(str, store), "--storage-driver", "overlay"]

    def run(self, *words: str, text: str | None = None) -> str:
        """The output of a command of podman; raises CalledProcessError, with what it said."""
        command = [*self._podman, *words]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"podman {' '.join(words)}: {done.stderr[-2000:]}")
        return done.stdout.strip()

    def gateway(self) -> str:
        """The address at which pods find this machine."""
        (network,) = json.loads(self.run("network", "inspect", "podman"))
        return str(network["subnets"][0]["gateway"])

    def make_secret(self, name: str, values: Mapping[str, str]) -> None:
        """A secret in the form that podman reads."""
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.run("secret", "create", name, "-", text=json.dumps(encoded))

    def play(self, pod: Document, maps: Iterable[Document]) -> None:
        """Start a pod beside the ConfigMaps that it names."""
        path = self.folder / f"{pod['metadata']['name']}.yaml"
        path.write_text(yaml.safe_dump_all([*maps, pod]))
        try:
            self.run("play", "kube", "--network", "podman", str(path))
        except SystemExit as error:
            raise SystemExit(f"{error}\n{self.logs(pod['metadata']['name'])}") from None

    def logs(self, pod: str) -> str:
        """The last lines that each container of a pod printed."""
        command = [*self._podman, "logs", "--tail", "20"]
        parts = []
        for name in self.codes(pod):
            done = subprocess.run([*command, name], capture_output=True, text=True, check=False)
            parts.append(f"{name} printed:\n{done.stdout}{done.stderr}")
        return "\n".join(parts)

    def address(self, pod: str) -> str:
        """The address of a pod on the bridge."""
        container = json.loads(self.run("pod", "inspect", pod))["InfraContainerID"]
        (described,) = json.loads(self.run("inspect", container))
        networks = described["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])

    def codes(self, pod: str) -> dict[str, int | None]:
        """Exit codes of a pod's containers by name, None for one that runs."""
        listed = json.loads(
            self.run("ps", "--all", "--filter", f"pod={pod}", "--format", "json") or "[]"
        )
        return {
            each["Names"][0]: each["ExitCode"] if each["Exited"] else None
            for each in listed
            if not each["IsInfra"]
        }

    def stop(self, pod: Document) -> Ended:
        """End a pod as a node does: its hook before it, then SIGTERM, and its grace period."""
        name, spec = pod["metadata"]["name"], pod["metadata"]["annotations"]
        began = time.monotonic()
        for container, words in json.loads(spec.get("preStop", "{}")).items():
            self.run("exec", f"{name}-{container}", *words)
        # Not the pod: its network would go at once, and a build's lease with it.
        running = [each for each, code in self.codes(name).items() if code is None]
        self.run("stop", "--time", spec["grace"], *running)
        codes = [code for code in self.codes(name).values() if code is not None]
        return Ended(time.monotonic() - began, tuple(codes))

    def remove_all(self) -> None:
        """End everything that is left, and forget the secrets and volumes."""
        self.run("pod", "rm", "--force", "--all", "--time", "5")
        self.run("secret", "rm", "--all")
        self.run("volume", "prune", "--force")


def pod_of(name: str, template: Document) -> Document:
    """A pod of a template's own spec, as podman takes it: images of this machine, no probes; its
    hooks and its grace period as annotations, for `Podman.stop`.
    """
    spec = dict(template["spec"])
    hooks = {
        container["name"]: container["lifecycle"]["preStop"]["exec"]["command"]
        for container in spec["containers"]
        if "lifecycle" in container
    }
    for key in ("initContainers", "containers"):
        spec[key] = [_container(container, name) for container in spec.get(key, ())]
    # To podman an emptyDir is a volume by its name, which pods would share.
    spec["volumes"] = [{**each, "name": f"{name}-{each['name']}"} for each in spec["volumes"]]
    # Always would have podman restart an init container that has done its work.
    spec.setdefault("restartPolicy", "OnFailure")
    grace = str(spec.pop("terminationGracePeriodSeconds"))
    annotations = {"grace": grace, "preStop": json.dumps(hooks)}
    labels = template["metadata"]["labels"]
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(container: Document, pod: str) -> Document:
    taken = {key: value for key, value in container.items() if key not in IGNORED}
    mounts = [{**mount, "name": f"{pod}-{mount['name']}"} for mount in container["volumeMounts"]]
    return {**taken, "image": f"localhost/{container['image']}", "volumeMounts": mounts}
