"""Headless Chromium, driven by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")

SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
"""Options with which pages get a WebGPU adapter that is made of the processor."""


def find() -> str | None:
    """The browser that is installed, None without one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def open_page(
    program: str, *, width: int = 1000, height: int = 640
) -> Iterator[tuple[Page, list[str]]]:
    """An empty page, and what goes wrong in it: exceptions, errors on its console."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--disable-dev-shm-usage", *SOFTWARE_GPU]
        )
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on(
                "console", lambda line: wrong.append(line.text) if line.type == "error" else None
            )
            yield page, wrong
        finally:
            browser.close()
