"""A control plane and a node of Kubernetes, as processes of this machine."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from tools.cluster.clients import wait
from tools.cluster.entering import make_group
from tools.cluster.settings import (
    CLIENTS,
    GATEWAY,
    NODE,
    SERVICES,
    SOCKET,
    SYSCTLS,
    TOKEN,
    commands,
    write_settings,
)

START_S = 180.0


class Node:
    """Servers that run until the process's namespace ends, and questions to them."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, archives: Iterator[Path]) -> None:
        """Start the servers; the node is ready and has the images of these archives."""
        write_settings(self.folder)
        self._prepare()
        for name, command in commands(self._programs, self.folder).items():
            with (self.folder / f"{name}.log").open("wb") as log:
                self._servers[name] = subprocess.Popen(command, stdout=log, stderr=log)
            if name == "kube-apiserver":
                self.wait(lambda: self._succeeds("get", "--raw=/readyz"), "an API server")
        self.wait(self._is_ready, "a ready node")
        for archive in archives:
            address = SOCKET.removeprefix("unix://")
            words = ["ctr", "--address", address, "--namespace", "k8s.io", "images", "import"]
            subprocess.run([*words, str(archive)], check=True, stdout=subprocess.DEVNULL)
            archive.unlink()

    def _prepare(self) -> None:
        """Make a bridge with addresses for pods and clients, a cgroup, a key, and files in place of
        settings of the kernel.
        """
        make_group()
        for words in (
            # An address that is set stays; otherwise it is the lowest of the ports', and changes
            # under connections as pods come and go.
            ["link", "add", "cni0", "address", "02:00:00:00:00:01", "type", "bridge"],
            *(["address", "add", f"{each}/24", "dev", "cni0"] for each in (GATEWAY, *CLIENTS)),
            ["link", "set", "cni0", "up"],
            ["route", "add", SERVICES, "dev", "cni0"],
        ):
            subprocess.run(["ip", *words], check=True)
        key = self.folder / "accounts.key"
        subprocess.run(
            ["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
        )
        for name, value in SYSCTLS.items():
            path = self.folder / name.replace("/", "-")
            path.write_text(f"{value}\n")
            subprocess.run(["mount", "--bind", str(path), f"/proc/sys/{name}"], check=True)

    def wait(self, condition: Callable[[], object], what: str, seconds: float = START_S) -> None:
        """Wait for a true condition while all servers run; raises SystemExit otherwise."""

        def check() -> object:
            for name, process in self._servers.items():
                if process.poll() is not None:
                    raise SystemExit(f"{name} ended: {self.log(name)}")
            return condition()

        wait(check, seconds, what)

    def log(self, name: str) -> str:
        """The end of what a server printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def describe(self) -> str:
        """The states of pods, events, and the ends of the servers' logs."""
        questions = (["get", "pods", "-o", "wide"], ["get", "events"], ["describe", "pods"])
        answers = [self._kubectl(*words).stdout[-6000:] for words in questions]
        return "\n".join([*answers, *(f"{name}:\n{self.log(name)}" for name in self._servers)])

    def _kubectl(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(self._programs / "kubectl"), "--namespace=relaxd", *words]
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig")}
        environment["HOME"] = str(self.folder)
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, env=environment
        )

    def _succeeds(self, *words: str) -> bool:
        return self._kubectl(*words).returncode == 0

    def run(self, *words: str, text: str | None = None) -> str:
        """The output of a command of kubectl; raises SystemExit with what it said."""
        done = self._kubectl(*words, text=text)
        if done.returncode:
            raise SystemExit(f"kubectl {' '.join(words)}: {done.stderr[-2000:]}")
        return done.stdout.strip()

    def get(self, *words: str) -> dict[str, Any]:
        """An object, or a list of them."""
        described: dict[str, Any] = json.loads(self.run("get", *words, "--output=json"))
        return described

    def apply(self, *documents: dict[str, Any]) -> None:
        """Create these objects or change them."""
        self.run("apply", "--filename=-", text=yaml.safe_dump_all(documents))

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The pods of a component that nobody asked to end."""
        items = self.get("pods", f"--selector=app.kubernetes.io/component={component}")["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def evict(self, pod: str) -> httpx.Response:
        """The answer to the request to evict a pod."""
        eviction = {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "relaxd"},
        }
        url = f"https://127.0.0.1:6443/api/v1/namespaces/relaxd/pods/{pod}/eviction"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        # The server's certificate is its own, and nobody else is on this network.
        return httpx.post(url, json=eviction, headers=headers, verify=False)

    def _is_ready(self) -> bool:
        return self._succeeds("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s")
