"""Signing in on the page at an OpenID Connect issuer, which the tests serve."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.usecases.tenants import tenants
from tests.service.live import Live, live
from tests.service.login_issuer import CLIENT, LoginIssuer, serve_login
from tests.support.browser import browser, check, open_page

pytestmark = pytest.mark.slow

JOBS = re.compile("Jobs|No jobs yet")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@dataclass
class Scene:
    """A service, and the issuer at which people sign in."""

    api: Live
    issuer: LoginIssuer

    @property
    def host(self) -> str:
        return self.issuer.url.removeprefix("http://")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with serve_login() as issuer:
        entry = {
            "issuer": issuer.url,
            "client_id": CLIENT,
            "claims": {"email": "*@acme.example"},
            "login_scopes": ["email"],
            "tenant": "a",
            "scopes": ["read", "submit"],
        }
        path = tmp_path / "issuers.json"
        path.write_text(json.dumps({"issuer": [entry]}))
        with live(tmp_path, token="operator", oidc_issuers=path) as api:
            tenants.create(api.services.core, "a")
            yield Scene(api, issuer)


def enter(page: Page, scene: Scene) -> None:
    """Follow the button to the issuer and back."""
    page.get_by_role("button", name=f"Sign in with {scene.host}").click()


def read_storage(page: Page) -> dict[str, str]:
    """The storage of the tab."""
    content: dict[str, str] = page.evaluate("({...sessionStorage})")
    return content


def test_from_the_button_to_the_page_that_was_asked_for_and_out_again(
    chromium: Browser, scene: Scene
) -> None:
    with open_page(chromium) as page:
        page.goto(f"{scene.api.url}/#/targets?text=cortex")
        expect(page.get_by_role("button", name=f"Sign in with {scene.host}")).to_be_visible()
        check(page, "sign-in-oidc")
        enter(page, scene)
        expect(page.get_by_role("heading", name="Targets", level=1)).to_be_visible()
        expect(page.get_by_role("searchbox").or_(page.get_by_label("Find targets"))).to_have_value(
            "cortex"
        )
        assert page.url == f"{scene.api.url}/#/targets?text=cortex", "no code stays in the address"
        expect(page.get_by_text("a", exact=True)).to_be_visible()
        (asked,), (traded,) = scene.issuer.asked, scene.issuer.traded
        assert asked["scope"] == "openid email"
        assert asked["code_challenge_method"] == "S256"
        assert "prompt" not in asked
        assert min(len(asked["state"]), len(asked["nonce"]), len(traded["code_verifier"])) >= 43
        assert len({asked["state"], asked["nonce"], traded["code_verifier"]}) == 3
        assert read_storage(page).keys() == {"relaxd.token"}
        assert page.evaluate("JSON.stringify(localStorage) + document.cookie") == "{}"
        page.reload()
        expect(page.get_by_role("heading", name="Targets", level=1)).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("status")).to_contain_text("You are signed out of this page.")
        expect(page.get_by_role("status")).to_contain_text(f"{scene.host} may still know you")
        assert "relaxd.token" not in read_storage(page)
        check(page, "signed-out")
        enter(page, scene)
        # Whoever comes next is asked, though the issuer knows the one before.
        page.get_by_role("link", name="I am Ada").click()
        expect(page.get_by_role("heading", name="Targets", level=1)).to_be_visible()
        assert scene.issuer.asked[-1]["prompt"] == "login"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"state": "forged"}, "This tab did not begin that sign-in"),
        ({"iss": "https://evil.example"}, "Another issuer than"),
        ({"code": "forged"}, "refused the sign-in: invalid_grant"),
    ],
)
def test_a_forged_answer_signs_nobody_in(
    chromium: Browser, scene: Scene, answer: dict[str, str], says: str
) -> None:
    scene.issuer.answer = answer
    with open_page(chromium) as page:
        page.goto(scene.api.url)
        enter(page, scene)
        expect(page.get_by_role("alert")).to_contain_text(says)
        assert read_storage(page) == {}
        assert page.url == f"{scene.api.url}/"
        scene.issuer.answer = {}
        enter(page, scene)
        expect(page.get_by_role("heading", level=1, name=JOBS)).to_be_visible()


def test_an_answer_counts_once_and_in_the_tab_that_began(chromium: Browser, scene: Scene) -> None:
    with open_page(chromium) as page:
        addresses: list[str] = []
        page.on("request", lambda request: addresses.append(request.url))
        page.goto(scene.api.url)
        enter(page, scene)
        expect(page.get_by_role("heading", level=1, name=JOBS)).to_be_visible()
        (answer,) = (address for address in addresses if f"{scene.api.url}/?" in address)
        with open_page(chromium) as other:
            other.goto(answer)
            expect(other.get_by_role("alert")).to_contain_text("This tab did not begin")
            assert read_storage(other) == {}
        page.get_by_role("button", name="Sign out").click()
        page.goto(answer)
        expect(page.get_by_role("alert")).to_contain_text("This tab did not begin")
    assert len(scene.issuer.traded) == 1


def test_a_token_of_another_sign_in_is_not_used(chromium: Browser, scene: Scene) -> None:
    scene.issuer.changes = {"nonce": "another"}
    with open_page(chromium) as page:
        page.goto(scene.api.url)
        enter(page, scene)
        expect(page.get_by_role("alert")).to_contain_text("was made for another sign-in")
        assert read_storage(page) == {}


def test_refusals_say_who_refuses(chromium: Browser, scene: Scene) -> None:
    with open_page(chromium) as page:
        page.goto(scene.api.url)
        scene.issuer.refuses = "access_denied"
        enter(page, scene)
        expect(page.get_by_role("alert")).to_contain_text("did not sign you in: access_denied")
        scene.issuer.refuses, scene.issuer.changes = None, {"email": "eve@evil.example"}
        enter(page, scene)
        expect(page.get_by_role("alert")).to_contain_text("takes your account")
        expect(page.get_by_role("alert")).to_contain_text("ask the operator")
        check(page, "sign-in-refused")


def test_the_end_is_told_before_and_after(chromium: Browser, scene: Scene) -> None:
    scene.issuer.lifetime_s = 60
    with open_page(chromium) as page:
        page.goto(f"{scene.api.url}/#/compile")
        enter(page, scene)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        note = page.get_by_role("status").filter(has_text="Your sign-in")
        expect(note).to_contain_text("Your sign-in ends at")
        check(page, "sign-in-ends")
        scene.issuer.lifetime_s = 3600
        with page.expect_navigation(url=re.compile("code=")):
            note.get_by_role("button", name="Sign in again").click()
        expect(page).to_have_url(f"{scene.api.url}/#/compile")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(note).to_have_count(0)
        # The clock of the service has 30 s of leeway.
        scene.issuer.lifetime_s = -25
        page.get_by_role("button", name="Sign out").click()
        enter(page, scene)
        page.get_by_role("link", name="I am Ada").click()
        expect(note).to_contain_text("Your sign-in ended at")
        until = time.monotonic() + 60
        while scene.api.http.get("/v1/whoami", headers=bearer(page)).status_code == 200:
            assert time.monotonic() < until
            time.sleep(0.2)
        page.get_by_role("link", name="Targets").click()
        expect(page.get_by_role("heading", name="Sign in to relaxd")).to_be_visible()
        expect(page.get_by_role("status")).to_contain_text("Your sign-in ended at")
        expect(page.get_by_role("status")).to_contain_text("to go on where you were")
        assert page.url.endswith("#/targets")


def bearer(page: Page) -> dict[str, str]:
    return {"Authorization": f"Bearer {read_storage(page)['relaxd.token']}"}


def test_an_issuer_that_is_away_and_a_token_beside_it(chromium: Browser, scene: Scene) -> None:
    scene.issuer.discovery = dict  # type: ignore[method-assign]
    with open_page(chromium) as page:
        page.goto(scene.api.url)
        enter(page, scene)
        expect(page.get_by_role("alert")).to_contain_text(f"cannot reach {scene.host}")
        page.get_by_label("Token").fill("operator")
        page.get_by_role("button", name="Sign in with a token").click()
        expect(page.get_by_role("heading", level=1, name=JOBS)).to_be_visible()


def test_a_token_that_was_revoked_is_told_of(chromium: Browser, scene: Scene) -> None:
    created = scene.api.http.post(
        "/v1/tokens", json={"name": "t", "scopes": ["read"], "tenant": "a"}
    )
    with open_page(chromium) as page:
        page.goto(scene.api.url)
        page.get_by_label("Token").fill(created.json()["token"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name=JOBS)).to_be_visible()
        scene.api.http.delete(f"/v1/tokens/{created.json()['id']}?tenant=a")
        # A request of the page is refused, be it its own or one of this reload.
        page.reload()
        expect(page.get_by_role("status")).to_contain_text("it has expired or was revoked")
