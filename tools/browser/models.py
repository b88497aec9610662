"""Real models in a page: at which shapes each is run, and the whole way there."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

import relaxd
from tests.support.models.known import MODELS, feed_of, path_of, reference
from tools.browser.checking import Point, Seen, origins, plan, watch
from tools.demo import wait_finished

Shapes = tuple[Mapping[str, int], ...]


def _grid(names: str, *rows: tuple[int, ...]) -> Shapes:
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


SHAPES: Mapping[str, Shapes] = {
    "minilm": _grid("batch seq", (1, 1), (1, 7), (1, 128), (4, 33), (8, 64)),
    "ppocr_det": _grid("n h w", (1, 32, 32), (1, 64, 96), (2, 96, 32), (3, 64, 64), (1, 320, 320)),
    "ppocr_rec": _grid("n w", (1, 16), (1, 33), (2, 100), (5, 48), (1, 320)),
    "silero_vad": _grid("batch", (1,), (2,), (3,), (8,), (16,)),
}
"""Where they are run in WebAssembly; other models at their own shapes."""
ON_GPU: Mapping[str, Shapes] = {
    "minilm": _grid("batch seq", (1, 1), (1, 7), (2, 5), (2, 16), (3, 33))
}
"""Where they are run on WebGPU, whose software adapter takes seconds for a run."""


def check_models(
    program: str,
    name: str,
    target: str,
    *,
    seconds: float = 300,
    threads: int | None = None,
    snapshot: Callable[[Page], object] = lambda page: None,
) -> Seen:
    """Serve, compile a model over HTTP, and have a page pull it, run it, and compare it with ONNX
    Runtime.

    program: Chromium; seconds: for the page; threads: as in `plan`; snapshot: gets the page at its
    end.
    """
    shapes = (ON_GPU if target == "webgpu" else SHAPES).get(name, MODELS[name].shapes)
    with (
        tempfile.TemporaryDirectory(prefix="relaxd-browser-") as folder,
        origins(Path(folder)) as (pages, server),
        relaxd.Client(server) as client,
    ):
        # The page is the check, and it runs what a user's page would.
        request = MODELS[name].request(
            targets=[target], options={"verify": False, "profile": False}
        )
        built = wait_finished(client.compile(path_of(name), **request))
        points = [_point(name, dims) for dims in shapes]
        plan(pages, server, built["artifact"]["ref"], points, threads=threads)
        return watch(program, pages.url, seconds=seconds, snapshot=snapshot)


def _point(name: str, dims: Mapping[str, int]) -> Point:
    """Without the inputs that the build has fixed."""
    feed = feed_of(name, dims)
    arguments: dict[str, Any] = {key: feed[key] for key in feed if key not in MODELS[name].consts}
    return Point(dims, arguments, reference(name, feed))
