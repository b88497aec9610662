"""The whole way of one model: serve, compile over HTTP, pull, run at several shapes, compare with
ONNX Runtime.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import relaxd
from relaxd.cli.following import follow
from relaxd.cli.views import size
from relaxd.client import JobHandle
from tests.support.models.known import MODELS, feed_of, path_of, reference

MODEL = "minilm"
TOLERANCE = 1e-4
START_S = 60
console = Console()


@contextmanager
def serve(folder: Path, **settings: str) -> Iterator[str]:
    """URL of an embedded service that keeps everything in `folder`; it is stopped at the end.

    settings: environment variables.
    """
    port, log = folder / "port", folder / "serve.log"
    command = [
        sys.executable,
        "-m",
        "relaxd",
        "serve",
        "--port",
        "0",
        "--port-file",
        str(port),
        "--data-dir",
        str(folder / "data"),
    ]
    with log.open("wb") as output:
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith("RELAXD_")
        }
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=plain | settings | {"TMPDIR": str(folder)}
        )
    try:
        deadline = time.monotonic() + START_S
        while not port.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text().strip()}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()


def wait_finished(job: JobHandle) -> dict[str, Any]:
    """The job's build, watched until it ends; ends the demo if it failed."""
    build = follow(job).build()
    if build["state"] != "succeeded":
        raise SystemExit(f"the build {build['state']}: {build['error']}")
    return build


def compare(model: relaxd.Model) -> bool:
    """Run the model at every sample shape and print how far it is from ONNX Runtime; whether it is
    near enough.
    """
    table = Table(
        "batch",
        "seq",
        "output",
        "shape",
        "max |difference|",
        title=f"against ONNX Runtime, at most {TOLERANCE:g}",
    )
    worst = 0.0
    for dims in MODELS[MODEL].shapes:
        feed = feed_of(MODEL, dims)
        outputs = model.run(feed)
        for name, expected in reference(MODEL, feed).items():
            difference = float(np.abs(outputs[name] - expected).max())
            worst = max(worst, difference)
            table.add_row(
                *map(str, dims.values()), name, str(list(expected.shape)), f"{difference:.1e}"
            )
    console.print(table)
    return worst <= TOLERANCE


def show(report: dict[str, Any], numerics: dict[str, Any]) -> None:
    """The bundle's profile and numerics, as the build measured them."""
    latency = Table(
        "batch",
        "seq",
        "median ms",
        "p95 ms",
        "runs",
        title=f"profile, {report['machine']['threads']} threads",
    )
    for point in report["points"]:
        latency.add_row(
            *map(str, point["dims"].values()),
            *(f"{point[key]:.2f}" for key in ("median_ms", "p95_ms")),
            str(point["runs"]),
        )
    operators = Table(
        "operator",
        "calls",
        "ms",
        "share",
        title=f"the longest operators at {report['operators']['dims']}",
    )
    for row in report["operators"]["rows"][:8]:
        operators.add_row(row["name"], str(row["calls"]), f"{row['ms']:.2f}", f"{row['share']:.0%}")
    exact = Table(
        "output",
        "verdict",
        "max |difference|",
        "worst at",
        title=f"numerics, {len(numerics['points'])} points",
    )
    for output in numerics["outputs"]:
        exact.add_row(
            output["name"],
            output["verdict"],
            f"{output['max_abs']:.1e}",
            str(output["worst"]["dims"]),
        )
    for table in (latency, operators, exact):
        console.print(table)
    console.print(
        f"loads in {report['load_ms']:.0f} ms, peak memory {size(report['peak_rss_bytes'])}"
    )


def main() -> int:
    """Exit status 0 if the library agrees with ONNX Runtime and the second request came from the
    cache.
    """
    # tvm_ffi imports torch where it is installed: three seconds that loading a bundle does not
    # need.
    sys.modules["torch"] = None
    model = path_of(MODEL)
    dims = MODELS[MODEL].dims
    with (
        tempfile.TemporaryDirectory(prefix="relaxd-demo-") as name,
        serve(Path(name)) as url,
        relaxd.Client(url) as client,
    ):
        console.rule(f"POST {model.name}, {size(model.stat().st_size)}, {dict(dims)}")
        build = wait_finished(client.compile(model, dims=dims))
        bundle = client.pull(build["artifact"]["digest"], Path(name) / "bundle")
        console.print(
            f"pulled {build['artifact']['digest']}, {size(build['artifact']['size'])}",
            soft_wrap=True,
        )
        near = compare(relaxd.load(bundle))
        show(build["profile"], build["numerics"])
        console.rule("the same POST again")
        began = time.monotonic()
        again = client.compile(model, dims=dims).wait().build()
        same = again["cached"] and again["artifact"] == build["artifact"]
        how = "from the cache" if again["cached"] else "compiled"
        console.print(
            f"{how} in {time.monotonic() - began:.2f} s: {again['artifact']['digest']}",
            soft_wrap=True,
        )
    console.print(
        "[bold green]all is well[/]" if near and same else "[bold red]something is off[/]"
    )
    return 0 if near and same else 1


if __name__ == "__main__":
    sys.exit(main())
