"""Every route asks for a scope, and whoever lacks it is refused, whatever the tenant."""

from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from service.api.scopes import INFINITIVES, NEEDS, OPEN
from service.identity import DEFAULT, Scope
from tests.service.routes import JSON, path_of
from tests.service.tenancy import House, house


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("scopes")) as running:
        yield running


def routes(router) -> set[tuple[str, str]]:
    """Every method and path of a router and of those that it includes."""
    results = set()
    for route in router.routes:
        if isinstance(route, APIRoute):
            results |= {(method, route.path) for method in route.methods}
        elif hasattr(route, "original_router"):
            results |= routes(route.original_router)
    return results


def test_the_table_and_the_app_have_the_same_routes(guarded: House) -> None:
    from service.api.app import create_app

    result = routes(create_app(guarded.live.services))
    assert result == NEEDS.keys() | OPEN
    assert len(result) > 40


def test_what_changes_something_has_a_name_for_the_audit_log() -> None:
    unnamed = [route for route, need in NEEDS.items() if need.action is None]
    assert {method for method, _ in unnamed} <= {"GET", "HEAD"}


@pytest.mark.parametrize("tenant", ["a", "b", DEFAULT])
@pytest.mark.parametrize("scope", list(Scope))
def test_a_route_is_refused_to_whoever_lacks_its_scope_and_to_nobody_else(
    guarded: House, tenant: str, scope: Scope
) -> None:
    client = guarded.client(tenant, scope)
    wrong = []
    for (method, template), need in NEEDS.items():
        body = JSON.get((method, template))
        # Some answers have no end.
        with client.stream(method, path_of(template, tenant), json=body) as answer:
            pass
        allowed = (not need.scopes or scope in need.scopes or scope is Scope.ADMIN) and (
            tenant == DEFAULT or not need.home
        )
        if (answer.status_code == 403) == allowed or answer.status_code in (401, 500):
            wrong.append((method, template, answer.status_code))
    assert wrong == []


def test_a_refusal_names_the_action_and_the_scope_that_it_takes(guarded: House) -> None:
    def message(tenant: str, method: str, path: str) -> str:
        answer = guarded.client(tenant, Scope.READ).request(method, path)
        return str(answer.json()["detail"])

    collecting = message("a", "POST", "/v1/gc")
    assert " may not collect garbage: that takes the scope admin in the operator" in collecting
    assert "'default'" in collecting
    assert message("a", "GET", "/v1/tokens").endswith(
        " may not send GET /v1/tokens: that takes the scope admin"
    )


def test_every_audited_action_has_a_sentence() -> None:
    assert {need.action for need in NEEDS.values() if need.action} == INFINITIVES.keys()


@pytest.mark.parametrize("route", sorted(NEEDS))
def test_no_route_answers_without_a_token(guarded: House, route: tuple[str, str]) -> None:
    method, template = route
    client = guarded.with_token("wrong")
    assert client.request(method, path_of(template, "a")).status_code == 401
