"""Clients of a deployment: one that builds a small model, and several that ask without pause."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx

from relaxd.client import Client
from relaxd.client.job import JobHandle
from tests.compiler.graphs import add_and_divide
from tools.cluster.servers import TOKEN

READY_S, BUILD_S = 120.0, 120.0


def wait(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for a true condition; raises SystemExit after so long."""
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


def has_workers(client: Client) -> bool:
    """True if some target has a live worker."""
    return any(target["workers"] for target in client.targets())


def submit(client: Client, largest: int) -> JobHandle:
    """A job for a small model whose dim is at most that."""
    return client.compile(add_and_divide().SerializeToString(), dims={"batch": (1, largest)})


def build(client: Client, largest: int) -> Mapping[str, object]:
    """The ended build of such a job."""
    job = submit(client, largest)
    job.wait(timeout=BUILD_S)
    return job.build()


def submit_running(client: Client, largest: int) -> JobHandle:
    """A job whose build some worker has begun."""
    job = submit(client, largest)
    wait(lambda: job.refresh().state != "queued", BUILD_S, "a running build")
    return job


def check_built_once(job: JobHandle) -> None:
    """The build succeeded in its first attempt."""
    assert job.refresh().state == "succeeded", job.build()
    attempts = [event for event in job.events() if event.type == "build.started"]
    assert len(attempts) == 1, attempts


@contextmanager
def load(urls: Sequence[str], addresses: Sequence[str | None]) -> Iterator[Counter[str]]:
    """A client at each of these addresses of this machine asks the URLs in turn until the block
    ends; the answers by status or error.
    """
    answers: Counter[str] = Counter()
    stop = threading.Event()
    threads = [
        threading.Thread(target=_ask, args=(urls, address, answers, stop, number))
        for number, address in enumerate(addresses)
    ]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _ask(
    urls: Sequence[str],
    address: str | None,
    answers: Counter[str],
    stop: threading.Event,
    number: int,
) -> None:
    """Every question comes by a connection of its own, so that a Service has to place it."""
    transport = httpx.HTTPTransport(
        local_address=address, limits=httpx.Limits(max_keepalive_connections=0)
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(timeout=30, headers=headers, transport=transport) as http:
        while not stop.wait(0.05):
            number += 1
            try:
                answer = http.get(f"{urls[number % len(urls)]}/v1/jobs")
            except httpx.TransportError as error:
                answers[type(error).__name__] += 1
            else:
                answers[str(answer.status_code)] += 1
