"""A row about who may do what: every route, scope and tenant, and tokens that are forged."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import httpx

from artifacts.documents import MANIFEST
from service.api.scopes import NEEDS
from service.identity import DEFAULT, Scope
from service.usecases.tenants import tokens
from tests.robustness.row import Outcome, Row, Run
from tests.service.forging import FORGED, World, status_of, trusting
from tests.service.routes import JSON, path_of
from tests.service.tenancy import compile_model

TENANTS = ("a", "b", DEFAULT)
REPORTED = 20


@dataclass(frozen=True)
class _Request:
    """A route with a token of `tenant`: for things of the tenant `of`, or, where that is None, for
    what is not there; or with a forged token.
    """

    route: tuple[str, str]
    tenant: str
    scope: Scope = Scope.ADMIN
    of: str | None = None
    namespace: str = ""
    forged: str = ""

    @property
    def allowed(self) -> bool:
        """True if the table of scopes allows the route to the token."""
        need = NEEDS[self.route]
        scoped = not need.scopes or self.scope in need.scopes or self.scope is Scope.ADMIN
        return scoped and (self.tenant == DEFAULT or not need.home)


def _foreign() -> list[_Request]:
    """Requests for things of others, in the namespace of either."""
    results = []
    for route, (tenant, of), scope in product(NEEDS, permutations(TENANTS, 2), Scope):
        names_a_thing = "{" in route[1].replace("{name:path}", "")
        if NEEDS[route].home or route[1].endswith("/{name}"):
            continue
        if "{name:path}" in route[1]:
            results.append(_Request(route, tenant, scope, of, namespace=of))
        if names_a_thing:
            results.append(_Request(route, tenant, scope, of, namespace=tenant))
    return results


REQUESTS = (
    *(_Request(*which, namespace=which[1]) for which in product(NEEDS, TENANTS, Scope)),
    *_foreign(),
    *(
        _Request(route, "a", namespace="a", forged=name)
        for route, name in zip([*NEEDS, *NEEDS], FORGED, strict=False)
    ),
)


def access(run: Run) -> Outcome:
    """Requests whose answers the table of scopes, and the owner of a thing, decide."""
    chosen = random.Random(run.seed).sample(REQUESTS, min(run.count, len(REQUESTS)))
    tally, wrong = Counter[str](), list[str]()
    with trusting(run.folder) as world:
        things = {tenant: _things(world, tenant) for tenant in TENANTS}
        clients = {which: world.house.client(*which) for which in product(TENANTS, Scope)}
        for request in chosen:
            kind, status, right = _answer(world, clients, things, request)
            tally[kind] += 1
            if not right:
                wrong.append(f"{request} was answered with {status}")
    counts = {"requests": len(chosen), **dict(sorted(tally.items())), "bypasses": len(wrong)}
    return Outcome(not wrong, counts, "\n".join(wrong[:REPORTED]))


def _answer(
    world: World,
    clients: Mapping[tuple[str, Scope], httpx.Client],
    things: Mapping[str, Mapping[str, str]],
    request: _Request,
) -> tuple[str, int, bool]:
    """The kind of a request, its answer's status, and whether that is right."""
    method, template = request.route
    if request.forged:
        path = path_of(template, request.namespace)
        status = status_of(world, FORGED[request.forged](world), method, path)
        return "forged tokens", status, status == 401
    arguments = {"things": things[request.of]} if request.of else {}
    path = path_of(template, request.namespace, **arguments)
    client = clients[request.tenant, request.scope]
    with client.stream(method, path, json=JSON.get(request.route)) as answer:
        status = answer.status_code
        # A registry answers with an empty list where there is nothing.
        nothing = "/referrers/" in path and status == 200 and not _referrers(answer)
    if request.of:
        return "for things of others", status, status in (400, 403, 404) or nothing
    right = (status != 403) if request.allowed else (status == 403)
    return ("allowed" if request.allowed else "refused"), status, right and status not in (401, 500)


def _referrers(answer: httpx.Response) -> list[Any]:
    answer.read()
    result: list[Any] = answer.json()["manifests"]
    return result


def _things(world: World, tenant: str) -> dict[str, str]:
    """A tenant's values for the parameters of paths."""
    client = world.house.client(tenant)
    job = compile_model(client, f"the model of {tenant}".encode())
    namespace = "relaxd" if tenant == DEFAULT else tenant
    bundle = job["builds"][0]["artifact"]["digest"]
    manifest = client.get(f"/v2/{namespace}/bundles/manifests/{bundle}").raise_for_status()
    position, kind = f"/v2/{namespace}/things/manifests/of-{tenant}", {"Content-Type": MANIFEST}
    client.put(position, content=manifest.content, headers=kind).raise_for_status()
    upload = client.post(f"/v2/{namespace}/things/blobs/uploads/").raise_for_status()
    return {
        "{job_id}": job["id"],
        "{token_id}": tokens.list_all(world.house.core, tenant)[0].id,
        "{digest}": bundle,
        "{reference}": f"of-{tenant}",
        "{upload}": upload.headers["Docker-Upload-UUID"],
    }


ROWS = (
    Row(
        "access",
        f"every route with a token of every scope and tenant, for things that are not there and "
        f"for those of others, and {len(FORGED)} forged tokens: no request is answered that the "
        "table of scopes or the owner of a thing refuses",
        len(REQUESTS),
        access,
        "answers that differ in time alone.",
    ),
)
