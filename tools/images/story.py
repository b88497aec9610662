"""Acts as a client of a running service: submit, poll, pull, run, compare; and what it must not
be able to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

import relaxd
from relaxd.client import Client
from tests.support.models.known import MODELS, feed_of, path_of, reference
from tools.images.deployment import Deployment

URL = "http://127.0.0.1:8484"
TOLERANCE = 1e-4


@contextmanager
def step(text: str) -> Iterator[None]:
    """Prints the step once it is done."""
    yield
    print(f"  {text}", flush=True)


def tell(deployment: Deployment, model: str, folder: Path) -> None:
    """Raises AssertionError at the first step that goes wrong."""
    token = deployment.environment("api")["RELAXD_TOKEN"]
    with step("no answer without a token"):
        assert httpx.get(f"{URL}/v1/targets").status_code == 401
    for name in ("api", "worker"):
        with step(f"{name}: its user, a read-only root, no capabilities"):
            check_confined(deployment, name)
    with Client(URL, token=token) as client:
        compile_model(client, model, folder)


def check_confined(deployment: Deployment, name: str) -> None:
    """A process of the service's container can write to its volumes and /tmp alone."""
    spec = deployment.specs[name]
    done = spec.run(["python", "-c", CONFINED, *spec.volumes, "/tmp"])
    assert done.returncode == 0, done.stderr
    seen = done.stdout.split()
    assert seen[:2] == [str(spec.ids[0]), "0" * 16], done.stdout
    assert seen[2] == "1", "new privileges can be had"


CONFINED = """
import errno, os, sys, tempfile
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
print(os.getuid(), status["CapEff"], status["NoNewPrivs"])
for folder in sys.argv[1:]:
    tempfile.TemporaryFile(dir=folder).close()
for path in ("/relaxd-was-here", "/opt/relaxd/was-here", "/etc/was-here"):
    try:
        open(path, "w")
    except OSError as error:
        assert error.errno == errno.EROFS, error
    else:
        raise SystemExit(f"{path} was written")
"""


def compile_model(client: Client, model: str, folder: Path) -> None:
    """One model compiles once, and its library computes what ONNX Runtime does."""
    real = MODELS[model]
    with step(f"{model} submitted and built"):
        job = client.compile(path_of(model), dims=real.dims)
        job.wait(timeout=3600)
        build = job.build()
        assert build["state"] == "succeeded", build["error"]
    with step(f"pulled {build['artifact']['digest'][:19]}, {build['artifact']['size']} bytes"):
        bundle = client.pull(build["artifact"]["digest"], folder / "bundle")
    worst = 0.0
    library = relaxd.load(bundle)
    for dims in real.shapes:
        feed = feed_of(model, dims)
        outputs = library.run(feed)
        for name, expected in reference(model, feed).items():
            worst = max(worst, float(np.abs(outputs[name] - expected).max()))
    with step(f"{len(real.shapes)} shapes, at most {worst:.1e} from ONNX Runtime"):
        assert worst <= TOLERANCE
    with step("the same again, from the cache"):
        again = client.compile(path_of(model), dims=real.dims).wait(timeout=3600).build()
        assert again["cached"], again
        assert again["artifact"] == build["artifact"]
