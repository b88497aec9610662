"""Hosts of WebAssembly: node, which has processor time, and a worker of a page in headless
Chromium, which has the clock alone.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler.verify.emulation import engine
from tools.browser import chromium, site
from tools.browser.checking import PACKAGE

Job = Mapping[str, Any]
Rows = list[dict[str, Any]]

_HERE = Path(__file__).parent
_PROGRAM, _PAGE = _HERE / "node.mjs", _HERE / "page"
_SHARED = (_HERE / "contest.mjs", _HERE / "peers.mjs")
_SERVED = (".mjs", ".wasm")
_LOG = ("INFO:", "WARNING:")
"""How lines begin that LiteRT.js logs as errors, and that are none."""
_MINUTES = 30


def in_node(job: Job, work: Path) -> Rows:
    """Measure in a process of node each case of the job, by processor time unless the job
    says `clock`. Raises CalledProcessError where results differ.
    """
    program = engine.find()
    if program is None:
        raise SystemExit(f"{engine.lacking()}: leave it out of --hosts")
    file = work / "web.json"
    file.write_text(json.dumps({"package": str(PACKAGE / "index.js"), **job}))
    printed = subprocess.check_output([program, str(_PROGRAM), str(file)], text=True)
    rows: Rows = json.loads(printed)
    return rows


def in_chromium(job: Job, work: Path) -> Rows:
    """Measure as `in_node` does, in a worker of a page that is cross-origin isolated, by the clock.
    Raises RuntimeError where results differ, or anything else went wrong in the page.
    """
    program = chromium.find()
    if program is None:
        raise SystemExit("there is no Chromium: leave it out of --hosts, or apt-get install it")
    file = work / "web.json"
    file.write_text(json.dumps(job))
    with site.serve(_files(job, file)) as pages, chromium.open_page(program) as (page, wrong):
        page.goto(f"{pages.url}/")
        page.wait_for_selector("body[data-state]", timeout=_MINUTES * 60_000)
        result = page.locator("#found").text_content() or ""
        errors = [line for line in wrong if not line.startswith(_LOG)]
        if page.locator("body").get_attribute("data-state") != "measured" or errors:
            raise RuntimeError("\n".join([result, *errors]))
    rows: Rows = json.loads(result)
    return rows


def _files(job: Job, file: Path) -> dict[str, Path]:
    """The files of the site: those that the job names have their own paths."""
    results = {"/": _PAGE / "index.html", "/job.json": file}
    results |= {f"/{one.name}": one for one in (*_PAGE.iterdir(), *_SHARED)}
    results |= {f"/relaxd/{one.name}": one for one in PACKAGE.iterdir()}
    if job["peer"]:
        results |= _peer_files(Path(job["peer"]), job["provider"], file.parent)
    for subject in job["subjects"]:
        named = [Path(subject["bundle"], name) for name in subject["names"]]
        named.append(Path(subject["model"]))
        named += [Path(one["file"]) for case in subject["cases"] for one in case["inputs"]]
        results |= {str(path): path for path in named}
    return results


def _peer_files(folder: Path, provider: str, work: Path) -> dict[str, Path]:
    """The scripts and modules of a peer's package, by their paths on the site."""
    if provider != "litert":
        return {f"/ort/{one.name}": one for one in folder.glob("ort*") if one.suffix in _SERVED}
    # The site's policy refuses import maps, with which a page would say where a package is.
    script = work / "litert.js"
    text = (folder / "dist" / "index.js").read_text()
    script.write_text(text.replace("@litertjs/wasm-utils", "./wasm-utils.js"))
    results = {f"/litert/wasm/{one.name}": one for one in (folder / "wasm").iterdir()}
    utilities = folder.parent / "wasm-utils" / "dist" / "index.js"
    return {**results, "/litert/index.js": script, "/litert/wasm-utils.js": utilities}


HOSTS: Mapping[str, Callable[[Job, Path], Rows]] = {"node": in_node, "chromium": in_chromium}
