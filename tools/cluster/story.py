"""A deployment's life: migrations, builds, confinement, a drain, a worker of one build, and an API
that is updated under load.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
from sqlalchemy import make_url

from relaxd.client import Client
from tests.compiler.graphs import add_and_divide
from tests.robustness.forwarding import forwarding
from tests.service.servers import postgres_process, redis_process
from tests.support.s3 import s3_server
from tools.cluster.podman import Document, Podman, pod_of
from tools.images.story import CONFINED, step
from tools.kubernetes.checking import FOLDER, documents
from tools.kubernetes.pools import read_description, render

TOKEN = "the operator's"
READY_S, BUILD_S = 120.0, 120.0
ONCE = """
[x86]
capabilities = "*,!cuda-*,!raw-cuda,!rocm,!raw-rocm"
max = 4
once = true
"""


@contextmanager
def servers(gateway: str) -> Iterator[dict[str, str]]:
    """PostgreSQL, Redis and S3, which pods reach at the gateway; the values of the secret."""
    with ExitStack() as stack:
        enter = stack.enter_context
        database, broker, store = (
            enter(postgres_process()),
            enter(redis_process()),
            enter(s3_server()),
        )
        with psycopg.connect(database.url, autocommit=True) as operator:
            operator.execute("CREATE DATABASE relaxd")

        def lend(url: str) -> str:
            forwarder = enter(forwarding(("127.0.0.1", int(urlsplit(url).port or 0)), "0.0.0.0"))
            return f"{gateway}:{forwarder.port}"

        yield {
            **store.environment,
            "AWS_ENDPOINT": f"http://{lend(store.endpoint)}",
            "RELAXD_DATABASE_URL": f"postgresql://relaxd@{lend(str(make_url(database.url)))}/relaxd",
            "RELAXD_BROKER_URL": f"redis://{lend(broker.url)}/0",
            "RELAXD_STORE_URL": "s3://relaxd/cluster",
            "RELAXD_TOKEN": TOKEN,
        }


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


def wait(condition: object, seconds: float, what: str) -> None:
    """Wait for a true condition; raises SystemExit after so long."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:g} s: {what}")
        time.sleep(0.2)


def is_ready(url: str) -> bool:
    """True if the API answers that it is ready."""
    try:
        return httpx.get(f"{url}/readyz", timeout=5).is_success
    except httpx.TransportError:
        return False


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


def has_workers(client: Client) -> bool:
    """True if some target has a live worker."""
    return any(target["workers"] for target in client.targets())


def build(client: Client, largest: int) -> Mapping[str, object]:
    """The ended build of a small model whose dim is at most that."""
    job = client.compile(add_and_divide().SerializeToString(), dims={"batch": (1, largest)})
    job.wait(timeout=BUILD_S)
    return job.build()


def check_confined(podman: Podman, container: str) -> None:
    """A process of the container can write to its volumes alone."""
    seen = podman.run("exec", container, "python", "-c", CONFINED, "/data", "/tmp").split()
    assert seen == ["10001", "0" * 16, "1"], seen


def check_drain(cluster: Cluster, client: Client) -> None:
    """A worker pod that is asked to end while it builds ends its build first."""
    job = client.compile(add_and_divide().SerializeToString(), dims={"batch": (1, 16)})
    with step("another build runs"):
        wait(lambda: job.refresh().state != "queued", BUILD_S, "a running build")
    ended = cluster.podman.stop(cluster.pods["worker-1"])
    with step(f"a worker pod that builds ended {ended.seconds:.0f} s after it was asked to, by 0"):
        assert ended.codes == (0,), ended
        assert job.refresh().state == "succeeded", job.build()
        attempts = [event for event in job.events() if event.type == "build.started"]
        assert len(attempts) == 1, attempts


def check_once(cluster: Cluster, client: Client) -> None:
    """A worker of a pool of Jobs does one build and ends."""
    folder = cluster.folder / "once"
    folder.mkdir()
    for path in FOLDER.iterdir():
        (folder / path.name).write_text(path.read_text())
    (folder / "pools.toml").write_text(ONCE)
    (folder / "pools.yaml").write_text(render(read_description(folder / "pools.toml")))
    content = add_and_divide().SerializeToString()
    jobs = [client.compile(content, dims={"batch": (1, most)}) for most in (24, 32)]
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
    answers: Counter[str] = Counter()
    stop = threading.Event()
    clients = [threading.Thread(target=ask, args=(urls, answers, stop, n)) for n in range(4)]
    for thread in clients:
        thread.start()
    seconds = []
    for number, old in enumerate(("api-1", "api-2")):
        urls[number] = cluster.start_api(f"api-{number + 3}")
        ended = cluster.podman.stop(cluster.pods[old])
        assert set(ended.codes) == {0}, ended
        seconds.append(round(ended.seconds, 1))
    stop.set()
    for thread in clients:
        thread.join()
    with step(f"both API pods replaced, ends took {seconds} s: answers {dict(answers)}"):
        assert set(answers) == {"200"}
        assert answers["200"] > 100


def ask(urls: list[str], answers: Counter[str], stop: threading.Event, number: int) -> None:
    """Ask the API pods in turn, as through a Service that knows which are ready."""
    with httpx.Client(timeout=30, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        while not stop.wait(0.05):
            number += 1
            try:
                answer = http.get(f"{urls[number % len(urls)]}/v1/jobs")
            except httpx.TransportError as error:
                answers[type(error).__name__] += 1
            else:
                answers[str(answer.status_code)] += 1
