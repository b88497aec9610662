"""The page's registered models, its searches in the address, and its administration."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from service.identity import Scope
from tests.service.live import Live, live
from tests.service.tenancy import OPERATOR, House, compile_model, house
from tests.support.browser import browser, check, open_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("admin")) as running:
        yield running


def test_a_build_gets_a_name_and_an_alias_that_moves(chromium: Browser, service: Live) -> None:
    jobs = [
        service.compile(request=f'{{"options": {{"rtol": {rtol}}}}}', wait=20).json()
        for rtol in (0.1, 0.2)
    ]
    with open_page(chromium) as page:
        page.goto(f"{service.url}/#/models")
        expect(page.get_by_role("heading", name="No model has a name yet")).to_be_visible()
        check(page, "models-none")
        for job, alias in zip(jobs, ("prod", ""), strict=True):
            page.goto(f"{service.url}/#/jobs/{job['id']}")
            name_it(page, alias)
            expect(page.get_by_role("heading", name="minilm")).to_be_visible()
        newest = page.locator(".versions > li").first
        expect(newest).to_contain_text("commit=1d0f2c")
        expect(newest.get_by_label("Changed since the version before")).to_contain_text("0.1 → 0.2")
        page.get_by_label("Point").fill("prod")
        page.get_by_label("at version").select_option("2")
        page.get_by_role("button", name="Move the alias").click()
        expect(page.get_by_role("row", name=re.compile("^prod 2 2 1 just now"))).to_be_visible()
        (moved,) = service.http.get("/v1/models/minilm").json()["aliases"]
        assert (moved["version"], moved["previous"]) == (2, 1)
        page.get_by_text("Project, labels and notes").click()
        page.get_by_label("Project").fill("search")
        page.get_by_label("Notes").fill("of the search")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("project search")).to_be_visible()
        check(page, "model")
        page.get_by_role("button", name="Remove version 1").click()
        expect(page.get_by_role("button", name="Remove version 1")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator(".versions > li")).to_have_count(1)
        page.get_by_role("link", name="Models").first.click()
        expect(page.get_by_label("Models by name")).to_contain_text("version 2")
        check(page, "models")


def name_it(page: Page, alias: str) -> None:
    """Register what the job built, under an alias if one is given."""
    page.get_by_text("Name it", exact=True).click()
    page.get_by_label("Name", exact=True).fill("minilm")
    page.get_by_label("Alias to point at it").fill(alias)
    page.get_by_label("Labels").fill("commit=1d0f2c")
    page.get_by_role("button", name="Register").click()


def test_a_search_stands_in_the_address(chromium: Browser, service: Live) -> None:
    service.compile(b"to be found", wait=20)
    with open_page(chromium) as page:
        page.goto(f"{service.url}/#/?state=failed&text=m.onnx")
        expect(page.get_by_role("heading", name="No job fits")).to_be_visible()
        field = page.get_by_label("Find jobs by name or id")
        expect(field).to_have_value("m.onnx")
        expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "true")
        page.get_by_role("button", name="Succeeded").click()
        expect(page.get_by_role("list", name="Jobs, the newest first")).to_be_visible()
        field.fill("two words ")
        expect(field).to_have_value("two words ")
        assert page.url.endswith("#/?state=succeeded&text=two+words+")
        page.reload()
        expect(field).to_have_value("two words ")
        page.get_by_role("button", name="All").click()
        field.fill("")
        assert page.url.endswith("#/")
        page.goto(f"{service.url}/#/targets?text=cortex")
        expect(page.get_by_role("row", name=re.compile("^cortex-m4"))).to_be_visible()
        expect(page.get_by_role("row", name=re.compile("^native"))).to_have_count(0)


def test_a_day_of_an_administrator(chromium: Browser, guarded: House) -> None:
    operator = guarded.live.http
    job = compile_model(operator)
    with open_page(chromium) as page:
        sign_in(page, guarded, OPERATOR)
        page.get_by_role("link", name="Admin").click()
        make_a_token(page, guarded)
        open_part(page, "Tenants")
        page.get_by_label("Name", exact=True).fill("vision")
        page.get_by_role("button", name="Make it").click()
        page.get_by_role("button", name="Change vision").click()
        page.get_by_label("Running builds").fill("4")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("row", name=re.compile("^vision"))).to_contain_text("4")
        check(page, "admin-tenants")
        (tenant,) = (
            one for one in operator.get("/v1/tenants").json()["tenants"] if one["name"] == "vision"
        )
        assert (tenant["running"], tenant["queued"], tenant["weight"]) == (4, None, 1.0)
        pin_and_unpin(page, guarded, job["index"]["digest"])
        open_part(page, "Collection")
        page.get_by_role("button", name="See what it would remove").click()
        expect(page.get_by_text("Would be removed")).to_be_visible()
        check(page, "admin-collection")
        open_part(page, "Audit")
        page.get_by_label("Find entries").fill("tenant.set")
        entries = page.get_by_role("region", name="Entries").get_by_role("row")
        expect(entries).to_have_count(2)
        expect(entries.last).to_contain_text("running 4")
        assert page.url.endswith("#/admin/audit?text=tenant.set")
        check(page, "admin-audit")


def open_part(page: Page, name: str) -> None:
    """Go to a part of the administration by its tab."""
    tabs = page.get_by_role("navigation", name="Administration")
    tabs.get_by_role("link", name=name).click()


def make_a_token(page: Page, guarded: House) -> None:
    """Make one for another tenant, which is shown once and works, and revoke it."""
    page.get_by_label("Tenant").select_option("a")
    page.get_by_label("Name, for the audit log").fill("nightly")
    page.get_by_label("Days until it expires").fill("90")
    page.get_by_role("button", name="Make it for a").click()
    shown = page.get_by_role("status").filter(has_text="Copy the token of nightly now")
    text = shown.locator("code").inner_text()
    assert guarded.with_token(text).get("/v1/whoami").json()["scopes"] == ["read"]
    check(page, "admin-tokens")
    revoke = page.get_by_role("button", name="Revoke nightly")
    revoke.click()
    expect(revoke).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Keep")).to_have_count(0)
    expect(revoke).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("group", name="Revoke nightly?").get_by_text("Revoke")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("row", name=re.compile("^nightly"))).to_contain_text("revoked")
    assert guarded.with_token(text).get("/v1/whoami").status_code == 401


def pin_and_unpin(page: Page, guarded: House, digest: str) -> None:
    """Pin a digest with a reason, and take the pin away."""
    open_part(page, "Pins")
    page.get_by_label("Digest of a build").fill(digest)
    page.get_by_label("Why").fill("in use")
    page.get_by_role("button", name="Pin it").click()
    expect(page.get_by_role("region", name="All pins")).to_contain_text("in use")
    check(page, "admin-pins")
    (pin,) = guarded.live.http.get("/v1/pins").json()["pins"]
    assert (pin["digest"], pin["why"], pin["expires_at"]) == (digest, "in use", None)
    unpin = page.get_by_role("button", name=re.compile("^Unpin "))
    unpin.click()
    expect(unpin).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing is pinned.")).to_be_visible()


def test_a_tenants_administrator_sees_that_tenant_and_others_nothing(
    chromium: Browser, guarded: House
) -> None:
    with open_page(chromium) as page:
        sign_in(page, guarded, token_of(guarded, "a", Scope.ADMIN))
        page.get_by_role("link", name="Admin").click()
        tabs = page.get_by_role("navigation", name="Administration").get_by_role("link")
        expect(tabs).to_have_text(["Tokens", "Pins", "Audit"])
        expect(page.get_by_label("Tenant", exact=True)).to_have_count(0)
    with open_page(chromium) as page:
        sign_in(page, guarded, token_of(guarded, "a", Scope.READ))
        expect(page.get_by_role("link", name="Jobs", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="Admin")).to_have_count(0)
        page.goto(f"{guarded.live.url}/#/admin")
        expect(page.get_by_text("does not let you administer")).to_be_visible()


def token_of(guarded: House, tenant: str, *scopes: Scope) -> str:
    """The text of a new token."""
    return guarded.client(tenant, *scopes).headers["Authorization"].removeprefix("Bearer ")


def sign_in(page: Page, guarded: House, token: str) -> None:
    """Give the token to the page."""
    page.goto(guarded.live.url)
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name=re.compile("Jobs"))).to_be_visible()
