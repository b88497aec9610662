"""The forms in which the manifests' pods run here: what each needs, does and shows."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.cluster import kubernetes_story, podman_story
from tools.cluster.manifests import REQUESTS
from tools.cluster.node import Node
from tools.cluster.podman import Podman
from tools.cluster.servers import servers
from tools.cluster.settings import GATEWAY, PAUSE
from tools.cluster.source import REFLECT, VERSION, Source
from tools.images.building import Builder
from tools.images.compose import ROOT

IMAGES = {
    "relaxd-api:0.1.0": "docker/api.Dockerfile",
    "relaxd-worker:0.1.0": "docker/worker.Dockerfile",
}
_SOURCE = Source(ROOT / ".cache/kubernetes")
_CATATONIT = Path("/usr/bin/catatonit")
_BOTH = {
    "buildah": "buildah",
    "catatonit": "catatonit",
    "mmdebstrap": "mmdebstrap",
    "redis-server": "redis-server",
    "ip": "iproute2",
    "/usr/lib/postgresql": "postgresql",
}
_BY_PODMAN = {"podman": "podman", "crun": "crun"}
_BY_KUBERNETES = {
    "containerd": "containerd",
    "runc": "runc",
    "etcd": "etcd-server",
    "iptables": "iptables",
    "openssl": "openssl",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
_TO_BUILD = {
    "go": "golang-go",
    "dpkg-source": "dpkg-dev",
    str(REFLECT): "golang-github-modern-go-reflect2-dev",
}
_SHOWN_BY_PODMAN = """This was `podman play kube`: pods of the manifests' own specs on one machine,
no cluster. It shows images, users, read-only roots, volumes, settings, secrets, migrations, drains,
`--once`. It does not show: scheduling, Services and their affinity, probes (readiness was asked for
from outside, hooks were run by the tool), what Deployments, the autoscaler, KEDA and disruption
budgets do (the update was made by the tool as the strategy says; no eviction was asked for),
network policies, several nodes."""
_SHOWN_BY_KUBERNETES = f"""This was Kubernetes {VERSION} of Debian on one node: the manifests
with the API versions of that release, and requests of {REQUESTS["cpu"]} and {REQUESTS["memory"]} a
container, so that all fit. It shows beyond podman's form: Deployments, probes, hooks, grace
periods, the Service by kube-proxy, the autoscaler's minimum, a rolling update, disruption budgets.
It does not show: KEDA (its objects were left out), an autoscaler that has metrics, DNS, network
policies (this network does not enforce them), the namespace's Pod Security (it came with 1.22),
several nodes, newer releases."""


@dataclass(frozen=True)
class Form:
    """Packages by the program or path that each brings; functions of the images' folder and of the
    run's, one before namespaces are entered and one within; and a statement of what was shown.
    """

    needs: Callable[[], Mapping[str, str]]
    prepare: Callable[[Path, Path], None]
    run: Callable[[Path, Path], None]
    shown: str

    def missing(self) -> list[str]:
        """The packages that the machine lacks."""
        return [
            package
            for name, package in self.needs().items()
            if not (Path(name).exists() if name.startswith("/") else shutil.which(name))
        ]


def _run_podman(images: Path, folder: Path) -> None:
    podman = Podman(images, folder)
    podman.remove_all()
    with servers(podman.gateway()) as values:
        try:
            podman.make_secret("relaxd", values)
            podman_story.tell(podman, folder)
        except BaseException:
            for pod in podman.run("pod", "ls", "--format", "{{.Name}}").split():
                print(podman.logs(pod))
            raise
        finally:
            podman.remove_all()


def _prepare_kubernetes(images: Path, folder: Path) -> None:
    _SOURCE.build()
    builder = Builder(images)
    builder.pack(_CATATONIT, ("-P",), PAUSE)
    builder.save(PAUSE, folder / "pause.tar", PAUSE)
    for image in IMAGES:
        name, _, tag = image.partition(":")
        builder.save(
            f"localhost/{image}", folder / f"{name}.tar", f"docker.io/library/{name}:{tag}"
        )


def _run_kubernetes(_images: Path, folder: Path) -> None:
    node = Node(_SOURCE.programs, folder)
    try:
        node.start(folder.glob("*.tar"))
        with servers(GATEWAY) as values:
            kubernetes_story.tell(node, values)
    except BaseException:
        print(node.describe())
        raise


FORMS = {
    "podman": Form(
        lambda: {**_BOTH, **_BY_PODMAN},
        lambda images, folder: None,
        _run_podman,
        _SHOWN_BY_PODMAN,
    ),
    "kubernetes": Form(
        lambda: {**_BOTH, **_BY_KUBERNETES, **({} if _SOURCE.is_built() else _TO_BUILD)},
        _prepare_kubernetes,
        _run_kubernetes,
        _SHOWN_BY_KUBERNETES,
    ),
}
