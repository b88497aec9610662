"""The page in a browser over a service that compiles: from a dropped model to a comparison."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e import graphs
from tests.e2e.deployment import Deployment
from tests.support.browser import browser, check, open_page

pytestmark = pytest.mark.slow

TOKEN = "the-operators-token"
BUILD_MS = 120_000


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment.start_embedded(
        tmp_path_factory.mktemp("page"), RELAXD_TOKEN=TOKEN
    ) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


def test_from_a_dropped_model_to_two_builds_compared(
    chromium: Browser, guarded: Deployment, tmp_path: Path
) -> None:
    model = tmp_path / "dense.onnx"
    model.write_bytes(graphs.dense())
    with open_page(chromium) as page:
        page.goto(guarded.url)
        sign_in(page)
        open_model(page, model)
        check(page, "compile")
        submit(page, greatest="32")
        first = page.url
        check(page, "job")
        page.get_by_role("button", name="Set as base").click()
        open_model(page, model)
        correct_a_dim(page)
        submit(page, greatest="64")
        assert page.url != first
        page.get_by_role("link", name="native").click()
        see_the_build(page, tmp_path)
        page.get_by_role("link", name=re.compile("Compare with dense.onnx")).click()
        see_the_difference(page)
        page.get_by_role("link", name="Jobs", exact=True).click()
        expect(page.get_by_role("list", name="Jobs, the newest first").locator("li")).to_have_count(
            2
        )
        check(page, "jobs")
        page.get_by_role("link", name="Targets").click()
        expect(page.get_by_role("row", name=re.compile("^native"))).to_contain_text("runs it")
        check(page, "targets")
        sign_out(page)


def sign_in(page: Page) -> None:
    """A wrong token is refused with a reason; the right one stays in the tab alone."""
    check(page, "sign-in")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not take this token")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    check(page, "empty")
    assert page.evaluate("sessionStorage.getItem('relaxd.token')") == TOKEN
    assert page.evaluate("JSON.stringify(localStorage) + document.cookie") == "{}"


def test_a_model_of_several_files_from_a_picker_a_folder_and_by_dropping(
    chromium: Browser, guarded: Deployment, tmp_path: Path
) -> None:
    folder = graphs.write_split(tmp_path / "split")
    model, data = folder / "dense.onnx", folder / "dense.onnx.data"
    with open_page(chromium) as page:
        page.goto(guarded.url)
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Compile", exact=True).click()
        check(page, "choose")
        page.set_input_files("input[multiple]", model)
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("the weights are in 'dense.onnx.data', which is not in")
        expect(alert).to_contain_text("on the page choose both files")
        page.set_input_files("input[multiple]", [data, model])
        page.get_by_label("Greatest n").wait_for(timeout=BUILD_MS)
        expect(page.get_by_text("2 files, ")).to_be_visible()
        submit(page, greatest="32")
        built = page.url
        page.get_by_role("link", name="Compile", exact=True).click()
        page.set_input_files("input[webkitdirectory]", folder)
        page.get_by_label("Greatest n").wait_for(timeout=BUILD_MS)
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_role("link", name="Compile", exact=True).click()
        drop_files(page, [data, model])
        page.get_by_label("Greatest n").wait_for(timeout=BUILD_MS)
        page.get_by_label("Greatest n").fill("32")
        page.get_by_role("button", name="Compile for native").click()
        expect(page.get_by_text("from the cache")).to_be_visible(timeout=BUILD_MS)
        assert page.url != built


def drop_files(page: Page, paths: list[Path]) -> None:
    """Drop files as a hand does."""
    contents = [[path.name, path.read_bytes().hex()] for path in paths]
    transfer = page.evaluate_handle(
        """contents => {
            const transfer = new DataTransfer();
            for (const [name, hex] of contents) {
                const data = Uint8Array.from(hex.match(/../g), (two) => parseInt(two, 16));
                transfer.items.add(new File([data], name));
            }
            return transfer;
        }""",
        contents,
    )
    page.dispatch_event(".drop", "drop", {"dataTransfer": transfer})


def open_model(page: Page, model: Path) -> None:
    """Give the model to the page and wait for what it is."""
    page.get_by_role("link", name="Compile", exact=True).click()
    expect(page.get_by_text("Drop a model here")).to_be_visible()
    page.set_input_files("input[type=file]", model)
    page.get_by_label("Greatest n").wait_for(timeout=BUILD_MS)


def correct_a_dim(page: Page) -> None:
    """A range that is none is named at once, and by the service if it is asked."""
    page.get_by_label("Greatest n").fill("0")
    expect(page.get_by_role("table", name="Dims")).to_contain_text("least is above greatest")
    page.get_by_role("button", name="Check again").click()
    expect(page.get_by_role("alert")).to_contain_text("min 1 is greater than max 0")


def submit(page: Page, greatest: str) -> None:
    """Declare the dim, compile, wait for the end."""
    field = page.get_by_label("Greatest n")
    field.fill(greatest)
    expect(page.get_by_role("table", name="Dims")).to_contain_text(f"1:{greatest}")
    page.get_by_role("button", name="Compile for native").click()
    expect(page.get_by_role("heading", name="dense.onnx")).to_be_visible()
    expect(page.get_by_role("status").get_by_text("succeeded")).to_be_visible(timeout=BUILD_MS)
    expect(page.get_by_role("log")).to_contain_text("codegen")


def see_the_build(page: Page, folder: Path) -> None:
    """The page shows the report, and a file comes down whole."""
    for heading in ("Latency", "Where the time goes", "Error", "Get it", "Files"):
        expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^n 1:64"))).to_contain_text("64")
    digest = page.url.rpartition("/")[2]
    command = page.get_by_label("pull command", exact=True)
    expect(command).to_contain_text(f"relaxd pull {digest}")
    page.get_by_role("button", name="skopeo").click()
    expect(command).to_contain_text(f"relaxd/bundles@{digest}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download manifest.json").click()
    download.value.save_as(folder / "manifest.json")
    assert '"dense.onnx"' in (folder / "manifest.json").read_text()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download dense.onnx-native.trace.json").click()
    download.value.save_as(folder / "trace.json")
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert any("project" in " ".join(event["args"].get("nodes", [])) for event in events)
    check(page, "build")


def see_the_difference(page: Page) -> None:
    """Two builds of one model differ in the declared range alone."""
    table = page.get_by_role("region", name="What differs")
    expect(table.get_by_role("row", name=re.compile("dim n"))).to_contain_text("1:32")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("region", name="Kernels of both builds")).to_be_visible()
    check(page, "diff")


def sign_out(page: Page) -> None:
    """By keyboard alone; the token is gone."""
    page.get_by_role("button", name="Sign out").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("sessionStorage.getItem('relaxd.token')") is None
