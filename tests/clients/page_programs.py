"""Programs in JavaScript that a page of headless Chromium runs over a bundle."""

import json
from pathlib import Path
from typing import Any

from tests.support.servers import missing
from tools.browser import chromium, site
from tools.browser.checking import PACKAGE


def ran(program: Path, bundle: Path, page: Path, *, seconds: float, **arguments: Any) -> Any:
    """Read the page's text that the program leaves, which is JSON, once the body has `data-state`;
    skips where Chromium is not installed.

    page: a folder that is made for what is served; seconds: the page's limit; arguments: documents
    by name, which the program fetches as `NAME.json`. The package is at `/relaxd/`, the bundle at
    `/bundle/`.
    """
    browser = chromium.find()
    if browser is None:
        missing("Chromium", "apt-get install chromium")
    page.mkdir()
    (page / "index.html").write_text("<script type='module' src='page.js'></script><body>-")
    (page / "page.js").write_text(program.read_text())
    for name, document in arguments.items():
        (page / f"{name}.json").write_text(json.dumps(document))
    with (
        site.serve({"/": page / "index.html"}) as pages,
        chromium.open_page(browser) as (opened, wrong),
    ):
        pages.add("/", page)
        pages.add("/relaxd/", PACKAGE)
        pages.add("/bundle/", bundle)
        opened.goto(pages.url)
        opened.wait_for_selector("body[data-state]", timeout=seconds * 1000)
        result = json.loads(opened.locator("body").inner_text())
    assert not [line for line in wrong if "favicon" not in line and "404" not in line]
    return result
