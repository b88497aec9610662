"""A language model in a page, whose worker pulls it and continues prompts token by token."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator

from tools.browser import chromium, site
from tools.browser.checking import facts_on

WRITING = Path(__file__).parent / "writing"
_STREAMING = "body:not([data-state]) #texts span:nth-of-type(2)"
"""A second token in a page that goes on writing."""

Step = tuple[int, float]


@dataclass(frozen=True)
class Written:
    """The result of the page: `written` or `wrong`, its last line, the texts, each token of each
    text with its logit, what went wrong, and what the page says of the model.
    """

    state: str
    verdict: str
    texts: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]
    wrong: tuple[str, ...]
    facts: Mapping[str, str]


def plan(
    pages: site.Site,
    server: str,
    reference: str,
    prompts: Mapping[str, list[int]],
    *,
    tokens: int,
    capacity: int,
    threads: int | None = None,
) -> None:
    """Write what the page is to do, and serve it: so many tokens behind each prompt, of which it
    gets the text and the tokens.

    threads: as many as a library with threads takes, None for the page's own choice.
    """
    folder = Path(tempfile.mkdtemp(dir=pages.scratch))
    document = {
        "server": server,
        "reference": reference,
        "prompts": [{"text": text, "ids": ids} for text, ids in prompts.items()],
        "tokens": tokens,
        "capacity": capacity,
        "threads": threads,
    }
    (folder / "plan.json").write_text(json.dumps(document))
    pages.add("/", folder)


def watch(
    program: str, url: str, *, seconds: float = 300, screenshot: Path | None = None
) -> Written:
    """Open the page, see that tokens come one by one, and wait for its end.

    screenshot: where to write a picture of it then.
    """
    limit = seconds * 1000
    with chromium.open_page(program) as (page, wrong):
        page.goto(url)
        begun = f"{_STREAMING}, body[data-state=wrong]"
        page.wait_for_selector(begun, state="attached", timeout=limit)
        page.wait_for_selector("body[data-state]", timeout=limit)
        if screenshot:
            page.screenshot(path=str(screenshot), full_page=True)
        texts = page.locator("#texts p").all()
        return Written(
            page.locator("body").get_attribute("data-state") or "",
            page.locator("#verdict").inner_text(),
            tuple(text.text_content() or "" for text in texts),
            tuple(tuple(map(_step, text.locator("span").all())) for text in texts),
            tuple(wrong),
            facts_on(page),
        )


def _step(piece: Locator) -> Step:
    return (
        int(piece.get_attribute("data-token") or ""),
        float(piece.get_attribute("data-logit") or ""),
    )
