"""Cache hits of the service that one command starts: a model is POSTed as a form, whose result is
in the cache, and what that takes beyond putting the same bytes into the store.

Posts and uploads take turns, one after the other, so that what else the machine does meets both.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.scale.client import Answer, Client, Message
from benchmarks.scale.fleet import ready
from benchmarks.scale.load import percentiles
from relaxd.contract.canonical import digest_of
from tests.compiler.graphs import add_and_divide

BATCH, WARM_UP = 50, 300
BOUNDARY = "a-line-that-no-model-has"
REQUEST = {"dims": {"batch": "1:8"}, "options": {"verify": False, "profile": False}}


def post_of(url: str, model: bytes) -> Message:
    """The model and its request as a form, to be answered when the job has ended."""
    parts = [
        ('name="model"; filename="model.onnx"', model),
        ('name="request"', json.dumps(REQUEST).encode()),
    ]
    form = b"".join(
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + body + b"\r\n"
        for head, body in parts
    )
    content = form + f"--{BOUNDARY}--\r\n".encode()
    media_type = f"multipart/form-data; boundary={BOUNDARY}"
    return Message("POST", f"{url}/v1/compile?wait=300", None, content, media_type)


def upload_of(url: str, model: bytes) -> Message:
    """The model alone, as OCI clients put a blob."""
    path = f"/v2/relaxd/models/blobs/uploads/?digest={digest_of(model)}"
    return Message("POST", url + path, None, model, "application/octet-stream")


async def measure(url: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of posts and uploads, and the 99th percentile of a post beyond the median
    upload.
    """
    model = add_and_divide().SerializeToString()
    messages = {"post": post_of(url, model), "upload": upload_of(url, model)}
    times: dict[str, list[float]] = {name: [] for name in messages}
    async with Client(timeout_s=300) as client:
        await client.ask(messages["post"])  # compiles
        for _ in range(WARM_UP):
            await client.ask(messages["post"])
        for _ in range(rounds):
            for name, message in messages.items():
                for _ in range(BATCH):
                    began = time.perf_counter()
                    answer = await client.ask(message)
                    times[name].append((time.perf_counter() - began) * 1000)
                    _check(name, answer)
    figures = {name: percentiles(part, 2) for name, part in times.items()}
    beyond = figures["post"]["p99"] - figures["upload"]["p50"]
    return {**figures, "p99_beyond_upload": round(beyond, 2), "posts": len(times["post"])}


def _check(name: str, answer: Answer) -> None:
    if name == "post":
        assert answer.json()["builds"][0]["cached"], answer
    assert answer.status in (200, 201), answer


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """The URL of `relaxd serve` with its data in that folder."""
    port_file = folder / "port"
    command = [sys.executable, "-m", "relaxd", "serve", "--port", "0"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port-file", str(port_file), "--data-dir", str(folder / "data")],
            env={**os.environ, "HOME": str(folder)},
            stdout=log,
            stderr=log,
        )
    try:
        yield ready(port_file)
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    """Print the figures as one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.hits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help=f"of {BATCH} posts and uploads")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="relaxd-hits-") as name, service(Path(name)) as url:
        before = os.getloadavg()
        figures = asyncio.run(measure(url, options.rounds))
    print(json.dumps({**figures, "loadavg": before}, indent=2))


if __name__ == "__main__":
    main()
