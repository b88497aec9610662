"""Compiles a model for a browser, and has a page pull it and compare it with ONNX Runtime."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page

from tools.browser import chromium, site
from tools.demo import serve

PACKAGE = Path(__file__).parents[2] / "clients" / "js" / "src"
PAGE = Path(__file__).parent / "page"
TOLERANCE = 1e-4

Feed = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Point:
    """One shape: what goes in, and what ONNX Runtime makes of it."""

    dims: Mapping[str, int]
    inputs: Feed
    outputs: Feed


@dataclass(frozen=True)
class Seen:
    """The result of the page: its verdict, the rows of its table, what went wrong in it, and what
    it says of the model.
    """

    state: str
    verdict: str
    rows: tuple[tuple[str, ...], ...]
    wrong: tuple[str, ...]
    facts: Mapping[str, str]


@contextmanager
def origins(folder: Path, page: Path = PAGE) -> Iterator[tuple[site.Site, str]]:
    """A site with a page and the npm package, and the URL of a service whose bundles it may pull.

    page: a folder of files, which stand before those of the checking page.
    """
    with site.serve({}) as pages:
        pages.add("/", PAGE)
        pages.add("/", page)
        pages.add("/relaxd/", PACKAGE)
        pages.files["/"] = page / "index.html"
        with serve(folder, RELAXD_PULL_ORIGINS=pages.url) as server:
            pages.connect = server
            yield pages, server


def plan(
    pages: site.Site,
    server: str,
    reference: str,
    points: Sequence[Point],
    *,
    overlap: bool = False,
    threads: int | None = None,
) -> None:
    """Write what the page is to do, and serve it: arrays as raw files beside `plan.json`.

    overlap: whether the page runs all points once more, each before the others have ended; threads:
    of which the page makes use, None for its own choice.
    """
    folder = Path(tempfile.mkdtemp(dir=pages.scratch))
    listed = []
    for number, point in enumerate(points):
        entry: dict[str, Any] = {"dims": dict(point.dims)}
        for kind, arrays in (("inputs", point.inputs), ("outputs", point.outputs)):
            entry[kind] = []
            for index, (name, array) in enumerate(arrays.items()):
                file = folder / f"{number}.{kind}.{index}.bin"
                file.write_bytes(np.ascontiguousarray(array).tobytes())
                entry[kind].append({"name": name, "dtype": str(array.dtype), "url": file.name})
        listed.append(entry)
    document = {
        "server": server,
        "reference": reference,
        "tolerance": TOLERANCE,
        "points": listed,
        "overlap": overlap,
        "threads": threads,
    }
    (folder / "plan.json").write_text(json.dumps(document))
    pages.add("/", folder)


def watch(
    program: str,
    url: str,
    *,
    seconds: float = 300,
    snapshot: Callable[[Page], object] = lambda page: None,
) -> Seen:
    """Open the page and wait for its verdict; `snapshot` gets the page then."""
    with chromium.open_page(program) as (page, wrong):
        page.goto(url)
        # The page's policy forbids the evaluation of any string, playwright's too.
        page.wait_for_selector("body[data-state]", timeout=seconds * 1000)
        rows = page.locator("#rows tr").all()
        seen = Seen(
            page.locator("body").get_attribute("data-state") or "",
            page.locator("#verdict").inner_text(),
            tuple(tuple(row.locator("td").all_inner_texts()) for row in rows),
            tuple(wrong),
            facts_on(page),
        )
        snapshot(page)
        return seen


def facts_on(page: Page) -> dict[str, str]:
    """Read the page's facts about the bundle and what runs it, by name."""
    names, texts = (page.locator(f"#facts {kind}").all_inner_texts() for kind in ("dt", "dd"))
    return dict(zip(names, texts, strict=True))
