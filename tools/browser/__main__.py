"""Has headless Chromium pull a model from a service, run it, and compare it with ONNX Runtime:
`python -m tools.browser [MODEL] [--target wasm32-simd] [--screenshot FILE]`.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from playwright.sync_api import Page

import relaxd
from tests.models import MODELS, feed_of, path_of, reference
from tools.browser import chromium
from tools.browser.checking import Point, origins, plan, watch
from tools.demo import finished

SHAPES = {
    "minilm": [
        {"batch": batch, "seq": seq} for batch, seq in ((1, 1), (1, 7), (1, 128), (4, 33), (8, 64))
    ]
}
"""Where it is run; other models at their own shapes."""


def main() -> int:
    """Exit status 0 if the page's numbers are near ONNX Runtime's at every shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="minilm", choices=MODELS)
    parser.add_argument("--target", default="wasm32-simd")
    parser.add_argument("--screenshot", type=Path, help="where to write a picture of the page")
    arguments = parser.parse_args()
    program = chromium.find()
    if program is None:
        raise SystemExit("there is no Chromium; apt-get install chromium")
    model, look = arguments.model, _look(arguments.screenshot)
    sys.modules["torch"] = None  # type: ignore[assignment]
    with (
        tempfile.TemporaryDirectory(prefix="relaxd-browser-") as folder,
        origins(Path(folder)) as (pages, server),
        relaxd.Client(server) as client,
    ):
        # The page is the check, and it runs what a user's page would.
        job = client.compile(
            path_of(model),
            dims=MODELS[model].dims,
            inputs=MODELS[model].inputs,
            consts=MODELS[model].consts,
            targets=[arguments.target],
            options={"verify": False, "profile": False},
        )
        points = [
            Point(dims, feed, reference(model, feed))
            for dims in SHAPES.get(model, MODELS[model].shapes)
            for feed in [feed_of(model, dims)]
        ]
        plan(pages, server, finished(job)["artifact"]["ref"], points)
        seen = watch(program, pages.url, look=look)
    for row in seen.rows:
        print(*row, sep="\t")
    print(seen.verdict, *seen.wrong, sep="\n")
    return 0 if seen.state == "near" and not seen.wrong else 1


def _look(screenshot: Path | None):
    if screenshot is None:
        return lambda page: None
    return partial(_shoot, screenshot)


def _shoot(file: Path, page: Page) -> None:
    page.screenshot(path=str(file), full_page=True)


if __name__ == "__main__":
    sys.exit(main())
