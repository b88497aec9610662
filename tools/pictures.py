"""Takes the pictures of docs/howto/web-page.md: the page over made-up jobs and reports.

`python -m tools.pictures [FOLDER]`
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, Page, Route, expect
from sqlalchemy import insert

from relaxd.contract.request import CompileRequest
from service.core import Core
from service.db.schema import builds, jobs
from tests.service.api.page_report import report
from tests.service.live import Live, announce, live
from tests.support.browser import browser, open_page

FOLDER = Path(__file__).parents[1] / "docs/howto/web"
WIDE = 1280
MINUTE = 60.0
BASE, HEAD = "sha256:" + "3f1c9a" * 10 + "07d2", "sha256:" + "b84e60" * 10 + "5c1f"


@dataclass(frozen=True)
class MadeUp:
    """A job of so many builds in each state, begun and ended so many minutes ago."""

    name: str
    states: dict[str, int]
    begun: float
    minutes: float = 0.0
    cached: bool = False

    @property
    def state(self) -> str:
        """The job's state, that of its builds together."""
        order = ("running", "queued", "failed", "succeeded")
        return next(state for state in order if state in self.states)


JOBS = (
    MadeUp("minilm.onnx", {"succeeded": 6, "running": 2, "queued": 2}, 0.6),
    MadeUp("resnet50.onnx", {"queued": 4}, 3),
    MadeUp("whisper-encoder.onnx", {"queued": 2}, 8),
    MadeUp("vit-small.onnx", {"succeeded": 8}, 36, 1.2),
    MadeUp("ppocr-det.onnx", {"succeeded": 4, "failed": 1}, 47, 1.3),
    MadeUp("ppocr-rec.onnx", {"succeeded": 6}, 59, 1.5),
    MadeUp("magika.onnx", {"succeeded": 1}, 66, 0.01, cached=True),
    MadeUp("silero-vad.onnx", {"succeeded": 3}, 78, 1.8),
)
STAGES = ("codegen", "profile")
INSPECTION = {
    "model": BASE,
    "supported": True,
    "inputs": [
        {"name": "input_ids", "dtype": "int64", "shape": ["batch", "seq"]},
        {"name": "attention_mask", "dtype": "int64", "shape": ["batch", "seq"]},
    ],
    "outputs": [
        {"name": "last_hidden_state", "dtype": "float32", "shape": ["batch", "seq", "384"]}
    ],
    "dims": {"batch": {"min": 1, "multiple": 1}, "seq": {"min": 1, "multiple": 1}},
    "operators": {"MatMul": 48, "Add": 95, "Softmax": 6, "LayerNormalization": 13, "Gather": 3},
    "nodes": [],
}


def fill(core: Core) -> None:
    """Write the made-up jobs into the database."""
    now = time.time()
    with core.writing() as tx:
        for number, job in enumerate(JOBS):
            states = [state for state, count in job.states.items() for _ in range(count)]
            request = CompileRequest.of(targets=[f"target-{index}" for index in range(len(states))])
            begun = now - job.begun * MINUTE
            ended = begun + job.minutes * MINUTE if job.minutes else None
            values = {
                "id": f"{0x5DAFD215778AEE23 * (number + 1) % (1 << 64):016x}",
                "kind": "compile",
                "state": job.state,
                "model": f"sha256:{number:064x}",
                "model_name": job.name,
                "request": request.to_json(),
                "fingerprint": "",
                "created_at": begun,
                "finished_at": ended,
            }
            tx.connection.execute(insert(jobs), [values])
            rows = [_build(values, index, state, job) for index, state in enumerate(states)]
            tx.connection.execute(insert(builds), rows)


def _build(job: dict[str, Any], index: int, state: str, made_up: MadeUp) -> dict[str, Any]:
    names = ("x86-64-v3", "aarch64", "x86-64-v4", "wasm32-simd", "android-arm64", "cuda-sm90")
    return {
        "id": f"{job['id']}-{index}",
        "job_id": job["id"],
        "position": index,
        "target": names[index % len(names)],
        "capability": names[index % len(names)],
        "state": state,
        "stage": STAGES[index % 2] if state == "running" else None,
        "cached": made_up.cached,
        "created_at": job["created_at"],
        "started_at": job["created_at"] if state != "queued" else None,
        "finished_at": job["finished_at"],
        "lease_until": job["created_at"] + 3600 if state == "running" else None,
        "due_at": job["created_at"],
        "rung_at": job["created_at"],
    }


def answer_reports(page: Page) -> None:
    """Give the page the made-up inspection and reports, of which the second is slower."""

    def artifact(route: Route) -> None:
        document: Any = report(slower=1.5 if HEAD[7:] in route.request.url else 1.0)
        if not route.request.url.endswith("/report"):
            ref = f"relaxd/bundles@{BASE}"
            document = {"digest": BASE, "ref": ref, "size": 95_000_000, "files": []}
        route.fulfill(body=json.dumps(document), content_type="application/json")

    def inspect(route: Route) -> None:
        route.fulfill(body=json.dumps(INSPECTION), content_type="application/json")

    page.route("**/v1/artifacts/**", artifact)
    page.route("**/v1/inspect*", inspect)


def show_jobs(page: Page, url: str) -> None:
    """The list of jobs."""
    page.goto(url)
    expect(page.get_by_text("silero-vad.onnx")).to_be_visible()
    expect(page.get_by_text("2 running")).to_be_visible()


def show_compile(page: Page, url: str) -> None:
    """The form after a model was dropped."""
    page.goto(f"{url}/#/compile")
    model: Any = {"name": "minilm.onnx", "mimeType": "x", "buffer": b"m" * 90_400}
    page.set_input_files("input[multiple]", [model])
    page.get_by_label("Greatest batch").fill("64")
    page.get_by_label("Greatest seq").fill("512")
    multiple = page.get_by_label("Multiple of seq")
    multiple.fill("8")
    multiple.blur()


def show_build(page: Page, url: str) -> None:
    """A report, with one kernel chosen."""
    page.goto(f"{url}/#/builds/{BASE}")
    tiles = page.get_by_role("group", name="Kernels by their share of the time")
    tiles.get_by_role("button").first.focus()


def show_comparison(page: Page, url: str) -> None:
    """Two reports beside each other."""
    page.goto(f"{url}/#/diff/{BASE}/{HEAD}")
    expect(page.get_by_role("region", name="Kernels of both builds")).to_be_visible()


PICTURES: tuple[tuple[str, str, int, Callable[[Page, str], None]], ...] = (
    ("jobs", "dark", 770, show_jobs),
    ("compile", "light", 0, show_compile),
    ("build", "light", 1750, show_build),
    ("comparison", "light", 1100, show_comparison),
)
"""Name, colours, height in CSS pixels (0: the whole page), and what leads there."""


def take(chromium: Browser, service: Live, folder: Path) -> None:
    """Write every picture."""
    for name, scheme, height, show in PICTURES:
        with open_page(chromium, scheme) as page:
            answer_reports(page)
            if height:
                page.set_viewport_size({"width": WIDE, "height": height})
            show(page, service.url)
            page.evaluate("scrollTo(0, 0)")
            page.evaluate("document.fonts.ready")
            page.screenshot(path=folder / f"{name}.png", full_page=not height)
            print(folder / f"{name}.png")


def main() -> None:
    """Take the pictures into the folder that the command names."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as data, live(Path(data), lease_s=3600) as service:
        fill(service.services.core)
        announce(service.services.core)
        with browser() as chromium:
            take(chromium, service, folder)


if __name__ == "__main__":
    main()
