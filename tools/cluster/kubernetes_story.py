"""A deployment's life in Kubernetes: migrations, replicas of the autoscaler, a Service, builds,
confinement, a drain, an API that is updated under load, an eviction that is refused.
"""

import json
import time
from typing import Any

import httpx

from relaxd.client import Client
from tools.cluster.clients import (
    build,
    check_built_once,
    has_workers,
    is_ready,
    load,
    submit_running,
)
from tools.cluster.manifests import adapted_documents
from tools.cluster.node import Node
from tools.cluster.servers import TOKEN
from tools.cluster.settings import CLIENTS
from tools.images.story import CONFINED, step

ROLLOUT_S, DRAIN_S = 300.0, 300.0
FINALIZER = "relaxd.example/seen"
"""A finalizer, for which a pod that ended stays to be looked at."""


def tell(node: Node, secret: dict[str, str]) -> None:
    """Raises AssertionError or SystemExit at the first step that goes wrong."""
    start(node, secret)
    url = f"http://{node.get('service', 'relaxd-api')['spec']['clusterIP']}"
    node.wait(lambda: is_ready(url), f"an answer of the Service at {url}")
    with Client(url, token=TOKEN) as client:
        with step("the Service answers, and a worker pod of the pool x86 has announced itself"):
            node.wait(lambda: has_workers(client), "a live worker")
        for component in ("api", "worker"):
            with step(
                f"{component}: user 10001, no capabilities, a read-only root but its volumes"
            ):
                check_confined(node, component)
        with step("a model is built, and the same again comes from the cache"):
            assert build(client, 8)["state"] == "succeeded"
            assert build(client, 8)["cached"]
        check_drain(node, client)
    check_update(node, url)
    check_eviction(node)


def start(node: Node, secret: dict[str, str]) -> None:
    """Apply the manifests and wait for their pods."""
    documents = list(adapted_documents())
    node.apply(*(each for each in documents if each["kind"] == "Namespace"))
    metadata = {"name": "relaxd", "namespace": "relaxd"}
    node.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": secret})
    node.apply(*documents)
    with step("an API pod and a worker pod are ready"):
        for name in ("api", "worker-x86"):
            wait_rollout(node, f"relaxd-{name}")
    with step(
        "the autoscaler made them two API pods; their init containers' migrations ended by 0"
    ):
        node.wait(lambda: len(ready_pods(node, "api")) == 2, "a second API pod")
        for pod in ready_pods(node, "api"):
            (status,) = pod["status"]["initContainerStatuses"]
            assert status["state"]["terminated"]["exitCode"] == 0, status


def wait_rollout(node: Node, deployment: str) -> None:
    """Wait until all pods of a deployment are of its present template and ready."""
    node.run("rollout", "status", f"deployment/{deployment}", f"--timeout={ROLLOUT_S:g}s")


def ready_pods(node: Node, component: str) -> list[dict[str, Any]]:
    """The pods of a component that are ready and stay."""
    return [
        pod
        for pod in node.pods(component)
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod["status"].get("conditions", ())
        )
    ]


def check_confined(node: Node, component: str) -> None:
    """A process of the component's container can write to its volumes alone."""
    pod = ready_pods(node, component)[0]["metadata"]["name"]
    words = ["python", "-c", CONFINED, "/data", "/tmp"]
    seen = node.run("exec", pod, f"--container={component}", "--", *words).split()
    assert seen == ["10001", "0" * 16, "1"], seen


def check_drain(node: Node, client: Client) -> None:
    """A worker pod that is deleted while it builds ends its build first."""
    (pod,) = (each["metadata"]["name"] for each in ready_pods(node, "worker"))
    hold(node, pod, [FINALIZER])
    job = submit_running(client, 16)
    began = time.monotonic()
    node.run("delete", "pod", pod, "--wait=false")
    assert job.refresh().state == "running", job.build()

    def find_end() -> Any:
        (status,) = node.get("pod", pod)["status"]["containerStatuses"]
        return status["state"].get("terminated")

    node.wait(find_end, f"the end of {pod}", DRAIN_S)
    seconds, end = time.monotonic() - began, find_end()
    hold(node, pod, [])
    with step(f"a worker pod deleted while it built ended {seconds:.0f} s after, by 0"):
        assert end["exitCode"] == 0, end
        check_built_once(job)
    with step("a worker pod in its place is ready, and builds"):
        wait_rollout(node, "relaxd-worker-x86")
        assert build(client, 24)["state"] == "succeeded"


def hold(node: Node, pod: str, finalizers: list[str]) -> None:
    """Set the finalizers of a pod, for which its object stays."""
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    node.run("patch", "pod", pod, "--type=merge", f"--patch={patch}")


def check_update(node: Node, url: str) -> None:
    """A rolling update of the API while clients at four addresses ask the Service without pause."""
    before = names(ready_pods(node, "api"))
    with load([url], CLIENTS) as answers:
        node.run("rollout", "restart", "deployment/relaxd-api")
        wait_rollout(node, "relaxd-api")
        node.wait(lambda: not before & names(all_pods(node)), "the end of the old API pods")
        after = names(ready_pods(node, "api"))
    with step(f"{len(after)} API pods replaced by a rolling update: answers {dict(answers)}"):
        assert len(after) == 2, after
        assert set(answers) == {"200"}, answers
        assert answers["200"] > 100


def check_eviction(node: Node) -> None:
    """One of two ready API pods can be evicted, and the second only once another is ready."""
    first, second = sorted(names(ready_pods(node, "api")))
    evicted, refused = node.evict(first), node.evict(second)
    with step(f"the eviction of an API pod: {evicted.status_code}; of both: {says(refused)}"):
        assert evicted.status_code == httpx.codes.CREATED, evicted.text
        assert refused.status_code == httpx.codes.TOO_MANY_REQUESTS, refused.text
        assert second in names(ready_pods(node, "api"))
    with step("once another is ready, so can the second"):
        node.wait(lambda: node.evict(second).status_code == httpx.codes.CREATED, "an eviction")


def says(answer: httpx.Response) -> str:
    """The status of a refusal, and its reason."""
    return f"{answer.status_code}, {answer.json()['message']}"


def names(pods: list[dict[str, Any]]) -> set[str]:
    """The names of pods."""
    return {pod["metadata"]["name"] for pod in pods}


def all_pods(node: Node) -> list[dict[str, Any]]:
    """Every pod of the API, those that are ending too."""
    items: list[dict[str, Any]] = node.get("pods", "--selector=app.kubernetes.io/component=api")[
        "items"
    ]
    return items
