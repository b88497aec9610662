"""Settings of Kubernetes' own servers for one machine, whose network nobody else sees."""

import json
from pathlib import Path
from typing import Any

from tools.cluster.entering import GROUP

GATEWAY = "10.201.0.1"
CLIENTS = ("10.201.0.2", "10.201.0.3", "10.201.0.4", "10.201.0.5")
SUBNET, FIRST_POD = "10.201.0.0/24", "10.201.0.10"
SERVICES = "10.202.0.0/24"
NODE = "node"
SOCKET = "unix:///run/containerd/containerd.sock"
PAUSE = "localhost/pause:1"
TOKEN = "of-the-operator"
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
"""What kubelet sets; it finds them so in files of its own, and the machine keeps its settings."""


def write_settings(folder: Path) -> None:
    """Write every file that the servers read."""
    (folder / "cni").mkdir()
    (folder / "cni/bridge.conflist").write_text(json.dumps(_network()))
    (folder / "containerd.toml").write_text(_containerd(folder))
    (folder / "kubeconfig").write_text(json.dumps(_connection()))
    (folder / "kubelet.yaml").write_text(json.dumps(_kubelet(folder)))
    (folder / "resolv.conf").write_text("")
    (folder / "tokens.csv").write_text(f'{TOKEN},operator,operator,"system:masters"\n')


def commands(programs: Path, folder: Path) -> dict[str, list[str]]:
    """Every server's command by name, in the order in which they start."""
    config, key = f"--kubeconfig={folder}/kubeconfig", folder / "accounts.key"
    alone = "--leader-elect=false"
    written = {
        "kube-apiserver": [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={GATEWAY}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
        ],
        "kube-controller-manager": [config, alone, f"--service-account-private-key-file={key}"],
        "kube-scheduler": [config, alone],
        "kubelet": [
            config,
            f"--config={folder}/kubelet.yaml",
            f"--root-dir={folder}/kubelet",
            "--container-runtime=remote",
            f"--container-runtime-endpoint={SOCKET}",
            f"--hostname-override={NODE}",
            f"--node-ip={GATEWAY}",
        ],
        "kube-proxy": [
            config,
            f"--hostname-override={NODE}",
            "--proxy-mode=iptables",
            # Else it sets limits that belong to the machine.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ],
    }
    own = {name: f"--cert-dir={folder}/{name}" for name in written if name != "kube-proxy"}
    return {
        "etcd": ["etcd", f"--data-dir={folder}/etcd"],
        "containerd": ["containerd", f"--config={folder}/containerd.toml"],
        **{
            name: [str(programs / name), *([own[name]] if name in own else []), *options]
            for name, options in written.items()
        },
    }


def _network() -> dict[str, Any]:
    ranges = [[{"subnet": SUBNET, "rangeStart": FIRST_POD, "gateway": GATEWAY}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _containerd(folder: Path) -> str:
    return f"""
version = 2
root = "{folder}/containerd"
state = "/run/containerd/state"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# Below its own, which may take a right that a build machine lacks.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folder}/cni"
"""


def _connection() -> dict[str, Any]:
    cluster = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NODE, "cluster": cluster}],
        "users": [{"name": NODE, "user": {"token": TOKEN}}],
        "contexts": [{"name": NODE, "context": {"cluster": NODE, "user": NODE}}],
        "current-context": NODE,
    }


def _kubelet(folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{GROUP}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "failSwapOn": False,
        "resolvConf": str(folder / "resolv.conf"),
        "volumePluginDir": str(folder / "plugins"),
    }
