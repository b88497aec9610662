"""A deployment's life: migrations, builds, confinement, a drain, a worker of one build, and an API
that is updated under load.
"""

from dataclasses import dataclass, field
from pathlib import Path

from relaxd.client import Client
from tools.cluster.clients import (
    BUILD_S,
    READY_S,
    build,
    check_built_once,
    has_workers,
    is_ready,
    load,
    submit,
    submit_running,
    wait,
)
from tools.cluster.podman import Document, Podman, pod_of
from tools.cluster.servers import TOKEN
from tools.images.story import CONFINED, step
from tools.kubernetes.checking import FOLDER, documents
from tools.kubernetes.pools import read_description, render

ONCE = """
[x86]
capabilities = "*,!cuda-*,!raw-cuda,!rocm,!raw-rocm"
max = 4
once = true
"""


@dataclass
class Cluster:
    """Pods that run, by name, and how to start more."""

    podman: Podman
    folder: Path
    pods: dict[str, Document] = field(default_factory=dict)

    def start(self, kind: str, workload: str, name: str, folder: Path = FOLDER) -> None:
        """Start a pod of a Deployment's or ScaledJob's template in the manifests."""
        known = [document for _, document in documents(folder)]
        maps = [document for document in known if document["kind"] == "ConfigMap"]
        (spec,) = (
            document["spec"]
            for document in known
            if (document["kind"], document["metadata"]["name"]) == (kind, workload)
        )
        self.pods[name] = pod_of(name, spec.get("jobTargetRef", spec)["template"])
        self.podman.play(self.pods[name], maps)

    def start_api(self, name: str) -> str:
        """A pod of the API that is ready, as its readiness probe would find; its URL."""
        self.start("Deployment", "relaxd-api", name)
        url = f"http://{self.podman.address(name)}:8484"
        wait(lambda: is_ready(url), READY_S, f"{name} at {url}: {self.podman.codes(name)}")
        return url


def tell(podman: Podman, folder: Path) -> None:
    """Raises AssertionError or SystemExit at the first step that goes wrong."""
    cluster = Cluster(podman, folder)
    with step("an API pod is ready, after its init container's migrations"):
        first = cluster.start_api("api-1")
    with step("a second API pod, which finds them done"):
        second = cluster.start_api("api-2")
    with Client(first, token=TOKEN) as client:
        with step("a worker pod of the pool x86 announces itself"):
            cluster.start("Deployment", "relaxd-worker-x86", "worker-1")
            wait(lambda: has_workers(client), READY_S, "a live worker")
        for container in ("api-1-api", "worker-1-worker"):
            with step(
                f"{container}: user 10001, no capabilities, a read-only root but its volumes"
            ):
                check_confined(podman, container)
        with step("a model is built"):
            assert build(client, 8)["state"] == "succeeded"
        with Client(second, token=TOKEN) as other, step("the other API pod has it in the cache"):
            assert build(other, 8)["cached"]
        check_drain(cluster, client)
        check_once(cluster, client)
    check_update(cluster, [first, second])


def check_confined(podman: Podman, container: str) -> None:
    """A process of the container can write to its volumes alone."""
    seen = podman.run("exec", container, "python", "-c", CONFINED, "/data", "/tmp").split()
    assert seen == ["10001", "0" * 16, "1"], seen


def check_drain(cluster: Cluster, client: Client) -> None:
    """A worker pod that is asked to end while it builds ends its build first."""
    with step("another build runs"):
        job = submit_running(client, 16)
    ended = cluster.podman.stop(cluster.pods["worker-1"])
    with step(f"a worker pod that builds ended {ended.seconds:.0f} s after it was asked to, by 0"):
        assert ended.codes == (0,), ended
        check_built_once(job)


def check_once(cluster: Cluster, client: Client) -> None:
    """A worker of a pool of Jobs does one build and ends."""
    folder = cluster.folder / "once"
    folder.mkdir()
    for path in FOLDER.iterdir():
        (folder / path.name).write_text(path.read_text())
    (folder / "pools.toml").write_text(ONCE)
    (folder / "pools.yaml").write_text(render(read_description(folder / "pools.toml")))
    jobs = [submit(client, most) for most in (24, 32)]
    cluster.start("ScaledJob", "relaxd-worker-x86", "once-1", folder)
    codes = cluster.podman.codes
    wait(lambda: None not in codes("once-1").values(), BUILD_S, "the end of a worker of one build")
    states = sorted(job.refresh().state for job in jobs)
    with step(f"a worker pod of a ScaledJob did one build of two and ended: {states}"):
        assert states == ["queued", "succeeded"]
        assert list(codes("once-1").values()) == [0]


def check_update(cluster: Cluster, urls: list[str]) -> None:
    """One API pod after the other is replaced as the Deployment's strategy says, a new one first,
    while clients ask without pause.
    """
    seconds = []
    with load(urls, [None] * 4) as answers:
        for number, old in enumerate(("api-1", "api-2")):
            urls[number] = cluster.start_api(f"api-{number + 3}")
            ended = cluster.podman.stop(cluster.pods[old])
            assert set(ended.codes) == {0}, ended
            seconds.append(round(ended.seconds, 1))
    with step(f"both API pods replaced, ends took {seconds} s: answers {dict(answers)}"):
        assert set(answers) == {"200"}, answers
        assert answers["200"] > 100
