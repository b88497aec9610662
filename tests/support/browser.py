"""A headless browser for tests of the page, and what it must not report."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.support.servers import missing

WIDE, HIGH = 1280, 860
PATIENCE_MS = 60_000
"""The longest wait for what a page is to show, on a machine that does much else."""
EVERY_RULE = {"resultTypes": ["violations"]}
OF_COLOURS = {
    **EVERY_RULE,
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
}
"""axe's rules for which the page in light is not that in dark."""
SHOTS = "RELAXD_SCREENSHOTS"
"""The variable that names a folder for pictures, as docs/howto/web-page.md shows them."""


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    path = shutil.which("chromium")
    if path is None:
        missing("chromium", "apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def open_page(chromium: Browser, scheme: str = "light") -> Iterator[Page]:
    """A page that has neither a script error nor a refusal by the policy, warnings included."""
    context = chromium.new_context(
        color_scheme=scheme,  # type: ignore[arg-type]
        viewport={"width": WIDE, "height": HIGH},
        reduced_motion="reduce",
    )
    expect.set_options(timeout=PATIENCE_MS)
    page, text_said = context.new_page(), []
    page.set_default_timeout(PATIENCE_MS)

    def note(message: ConsoleMessage) -> None:
        # The browser prints each refused request, and tests provoke some.
        if (
            message.type in ("error", "warning")
            and "responded with a status of 4" not in message.text
        ):
            text_said.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: text_said.append(str(error)))
    try:
        yield page
        assert text_said == []
    finally:
        context.close()


def turn(page: Page, scheme: str) -> None:
    """Shows the page in light or dark colours."""
    page.evaluate("scheme => { document.documentElement.dataset.theme = scheme; }", scheme)


def check(page: Page, name: str, *, full: bool = True) -> None:
    """Asserts that axe finds nothing, in both colours; keeps a picture of each where one is
    wanted, of the `full` page or what is seen of it.

    A page has its heading once the script has drawn it, which may be after it has loaded.
    """
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for scheme, rules in (("dark", EVERY_RULE), ("light", OF_COLOURS)):
        turn(page, scheme)
        result = Axe().run(page, options=rules).response["violations"]
        message = [
            (rule["id"], node["target"], node["failureSummary"])
            for rule in result
            for node in rule["nodes"][:3]
        ]
        assert message == [], f"{name}, {scheme}: {message}"
        if folder := os.environ.get(SHOTS):
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=Path(folder) / f"{name}-{scheme}.png", full_page=full)
