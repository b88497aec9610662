"""Has headless Chromium pull a model from a service, run it, and compare it with ONNX Runtime:
`python -m tools.browser [MODEL] [--target wasm32-simd] [--threads N] [--screenshot FILE]`.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from playwright.sync_api import Page

from tests.support.models.known import MODELS
from tools.browser import chromium
from tools.browser.models import check_models


def main() -> int:
    """Exit status 0 if the page's numbers are near ONNX Runtime's at every shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="minilm", choices=MODELS)
    parser.add_argument("--target", default="wasm32-simd")
    parser.add_argument(
        "--threads", type=int, help="for wasm32-threads; by default the page's choice"
    )
    parser.add_argument("--screenshot", type=Path, help="where to write a picture of the page")
    arguments = parser.parse_args()
    program = chromium.find()
    if program is None:
        raise SystemExit("there is no Chromium; apt-get install chromium")
    sys.modules["torch"] = None
    snapshot = _screenshot_taker(arguments.screenshot)
    seen = check_models(
        program, arguments.model, arguments.target, threads=arguments.threads, snapshot=snapshot
    )
    for row in seen.rows:
        print(*row, sep="\t")
    print(seen.verdict, *seen.wrong, sep="\n")
    return 0 if seen.state == "near" and not seen.wrong else 1


def _screenshot_taker(screenshot: Path | None):
    if screenshot is None:
        return lambda page: None
    return partial(_shoot, screenshot)


def _shoot(file: Path, page: Page) -> None:
    page.screenshot(path=str(file), full_page=True)


if __name__ == "__main__":
    sys.exit(main())
