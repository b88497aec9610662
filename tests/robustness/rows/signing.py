"""Rows about signed bundles."""

import random
import shutil
from pathlib import Path

from relaxd.client import Client
from relaxd.provenance.checking import check_folder
from relaxd.provenance.errors import TrustError
from relaxd.provenance.statement import subjects_of
from tests.e2e.graphs import dense
from tests.robustness.row import Outcome, Row, Run
from tests.robustness.rows.models import inspecting
from tests.support.signing import key_pair, mutate

REPORTED = 20
BUILD_S = 300


def mutations(run: Run) -> Outcome:
    """Change a copy of a bundle that a service built and signed in one place, and check it."""
    draw, keys = random.Random(run.seed), key_pair(run.folder / "ours")
    manifest, signed = _build(run, keys)
    files = subjects_of(check_folder(signed, keys / "key.pub", manifest)).files
    wrong: list[str] = []
    verified = refused = 0
    for _ in range(run.count):
        folder = run.folder / "changed"
        shutil.copytree(signed, folder)
        check_folder(folder, keys / "key.pub", manifest)
        mutation = mutate(folder, draw, files)
        try:
            check_folder(folder, keys / "key.pub", manifest)
        except TrustError as error:
            refused += 1
            if error.part not in mutation.parts:
                wrong.append(f"{mutation.done}: the error names {error.part}")
        else:
            verified += 1
            wrong.append(f"{mutation.done}: it was accepted")
        shutil.rmtree(folder)
    counts = {
        "signed files": len(files),
        "refused": refused,
        "verified": verified,
        "named wrongly": len(wrong) - verified,
    }
    return Outcome(not wrong, counts, "\n".join(wrong[:REPORTED]))


def _build(run: Run, keys: Path) -> tuple[str, Path]:
    """A bundle that a service compiled, signed and gave to a client: its digest and its folder."""
    with (
        inspecting(run, signing_key=keys / "key.pem") as inspection,
        Client(str(inspection.http.base_url)) as client,
    ):
        job = client.compile(dense(), dims={"n": (1, 8)}).wait(BUILD_S)
        folder = run.folder / "signed"
        bundle = job.bundle()
        client.verify(bundle, keys / "key.pub", folder)
    return bundle, folder


ROWS = (
    Row(
        "signed-mutations",
        "no change to a bundle that a service compiled and signed is accepted, and each error "
        "names the part that was changed",
        1000,
        mutations,
        minimums={"refused": 1},
    ),
)
