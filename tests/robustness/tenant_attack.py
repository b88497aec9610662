"""A tenant that may submit jobs alone and tries every endpoint: `python -m
tests.robustness.tenant_attack URL TOKEN TENANT SECONDS SEED` prints what it was answered, as JSON.
"""

import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from relaxd.contract.canonical import digest_of
from service.api.scopes import NEEDS
from tests.service.routes import JSON, NOTHING, path_of
from tests.support import plain_http

CONNECTIONS = 16
TIMEOUT_S = 30.0
MIB = 1 << 20
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MANY_VALUES = 16_000


@dataclass
class Tally:
    """Answers by route, and by status; `wrong`: answers that no request may get."""

    routes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, route: str, answer: httpx.Response) -> None:
        """Count an answer."""
        self.routes[route] += 1
        self.statuses[str(answer.status_code)] += 1
        if answer.status_code == 500:
            self.wrong.append(f"{route}: {answer.status_code} {answer.text[:300]}")


class Attacker:
    """One connection of the tenant's: each method attacks in a way of its own."""

    def __init__(self, url: str, token: str, tenant: str, tally: Tally, seed: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.http = plain_http.Client(base_url=url, headers=headers, timeout=TIMEOUT_S)
        self.headers, self.tenant, self.tally = headers, tenant, tally
        self.draw = random.Random(seed)
        self.things = dict(NOTHING)
        self.address = str(httpx.URL(url).host), int(httpx.URL(url).port or 80)

    def _ask(self, route: str, method: str, path: str, **what: Any) -> httpx.Response | None:
        try:
            answer = self.http.request(method, path, **what)
        except httpx.TransportError:
            self.tally.statuses["closed"] += 1
            return None
        self.tally.note(route, answer)
        return answer

    def every_route(self) -> None:
        """Ask each route once, in any order, for things of its own and such as are not there."""
        for route in self.draw.sample(sorted(NEEDS), len(NEEDS)):
            method, template = route
            things = self.draw.choice((self.things, NOTHING))
            path = path_of(template, self.tenant, things)
            self._ask(f"{method} {template}", method, path, json=JSON.get(route))

    def submit(self) -> None:
        """Send models of any size, for targets and dims of any number."""
        model = {"ledger": "/dev/null", "seconds": self.draw.choice((0, 0.1, 5, 600))}
        content = json.dumps(model | {"pad": "x" * self.draw.choice((0, 1000, MIB, 3 * MIB))})
        request = self.draw.choice((_plain, _many_dims, _many_targets, _long_names))(self.draw)
        files: dict[str, Any] = {"model": ("m.onnx", content), "request": (None, request)}
        params = self.draw.choice(({}, {}, {"wait": 3600}))
        with suppress(httpx.ReadTimeout):
            answer = self._ask(
                "POST /v1/compile", "POST", "/v1/compile", files=files, params=params, timeout=10
            )
            if answer is not None and answer.is_success:
                self.things["{job_id}"] = answer.json()["id"]
                self.things["{digest}"] = answer.json()["model"]

    def submit_again(self) -> None:
        """Submit a model that is there already, fifty times."""
        for number in range(50):
            document = {"model": self.things["{digest}"], "dims": {f"d{number}": [1, 2]}}
            self._ask("POST /v1/jobs", "POST", "/v1/jobs", json=document)

    def inspect(self) -> None:
        """Have what is no model inspected, and not wait for it."""
        document = {"model": self.things["{digest}"]}
        self._ask("POST /v1/inspect", "POST", "/v1/inspect?wait=0.1", json=document)

    def sessions(self) -> None:
        """Begin uploads and leave them, with and without bytes."""
        for _ in range(20):
            answer = self._ask("POST uploads", "POST", self._uploads())
            if answer is not None and answer.status_code == 202:
                position = answer.headers["Location"]
                self.things["{upload}"] = position.rpartition("/")[2]
                self._ask("PATCH upload", "PATCH", position, content=self._bytes())

    def blobs(self) -> None:
        """Upload blobs, right ones and such with another digest."""
        for _ in range(10):
            data = self._bytes()
            digest = self.draw.choice((digest_of(data), digest_of(b"other")))
            self._ask("POST blob", "POST", f"{self._uploads()}?digest={digest}", content=data)

    def manifests(self) -> None:
        """Put manifests of many layers, and list what refers to them."""
        layer = {"mediaType": "a/b", "digest": NOTHING["{digest}"], "size": 1}
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": [layer] * 4096}
        repository = f"/v2/{self.tenant}/things"
        for _ in range(5):
            body = json.dumps(document | {"config": layer, "annotations": {"n": str(self.draw)}})
            headers = {"Content-Type": MANIFEST}
            position = f"{repository}/manifests/v{self.draw.randrange(9)}"
            self._ask("PUT manifest", "PUT", position, content=body, headers=headers)
            self._ask("GET referrers", "GET", f"{repository}/referrers/{NOTHING['{digest}']}")

    def heads(self) -> None:
        """Look for blobs, two hundred times."""
        path = f"/v2/{self.tenant}/things/blobs/{self.things['{digest}']}"
        for _ in range(200):
            self._ask("HEAD blob", "HEAD", path)

    def listings(self) -> None:
        """Ask for what is read in many rows, and is another scope's."""
        for path in ("/v1/jobs?limit=1000", "/v1/audit?limit=1000", "/v1/overview", "/metrics"):
            for _ in range(10):
                self._ask(f"GET {path}", "GET", path)
        for _ in range(10):
            self._ask("GET /v1/targets", "GET", "/v1/targets")

    def cancels(self) -> None:
        """Cancel one's last job again and again."""
        for _ in range(20):
            path = f"/v1/jobs/{self.things['{job_id}']}:cancel"
            self._ask("POST cancel", "POST", path)

    def hanging(self) -> None:
        """Open connections that begin a body, send a part of it, and reset them or say no more."""
        head = f"POST {self._uploads()}?digest={digest_of(b'never')} HTTP/1.1\r\nHost: localhost"
        lines = [head, f"Authorization: {self.headers['Authorization']}"]
        sent = "\r\n".join([*lines, "Content-Length: 10000000", "", ""]).encode()
        opened = []
        with suppress(OSError):
            for _ in range(30):
                opened.append(socket.create_connection(self.address, TIMEOUT_S))
                opened[-1].sendall(sent + bytes(self.draw.choice((0, 1000, MIB // 2, 2 * MIB))))
        time.sleep(self.draw.choice((0, 0, 2)))
        for connection in opened:
            connection.close()
        self.tally.routes["unfinished"] += len(opened)

    def _uploads(self) -> str:
        return f"/v2/{self.tenant}/things/blobs/uploads/"

    def _bytes(self) -> bytes:
        return self.draw.randbytes(self.draw.choice((1, 1000, MIB, 3 * MIB)))


KINDS: tuple[Callable[[Attacker], None], ...] = (
    Attacker.every_route,
    Attacker.submit,
    Attacker.submit_again,
    Attacker.inspect,
    Attacker.sessions,
    Attacker.blobs,
    Attacker.manifests,
    Attacker.heads,
    Attacker.listings,
    Attacker.cancels,
    Attacker.hanging,
)


def _plain(draw: random.Random) -> str:
    return "{}"


def _many_dims(draw: random.Random) -> str:
    return json.dumps({"dims": {f"d{draw.random()}": 1 for _ in range(MANY_VALUES // 2)}})


def _many_targets(draw: random.Random) -> str:
    return json.dumps({"targets": ["native", "x86-64-v2", "x86-64-v3", "aarch64"]})


def _long_names(draw: random.Random) -> str:
    return json.dumps({"dims": {"d" * 200_000: 1}})


def attack(url: str, token: str, tenant: str, seconds: float, seed: int) -> Tally:
    """Attack from CONNECTIONS at a time; each goes through all kinds, from another one on."""
    tally, end = Tally(), time.monotonic() + seconds

    def work(number: int) -> None:
        attacker = Attacker(url, token, tenant, tally, f"{seed} {number}")
        for kind in _kinds_from(number):
            if time.monotonic() > end:
                return
            kind(attacker)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


def _kinds_from(number: int) -> Iterator[Callable[[Attacker], None]]:
    while True:
        yield KINDS[number % len(KINDS)]
        number += 1


if __name__ == "__main__":
    url, token, tenant, seconds, seed = sys.argv[1:]
    done = attack(url, token, tenant, float(seconds), int(seed))
    print(json.dumps({"routes": done.routes, "statuses": done.statuses, "wrong": done.wrong[:20]}))
