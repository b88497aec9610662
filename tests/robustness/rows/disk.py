"""Rows about a disk that is full, or fails."""

import json
import os
import subprocess
import sys

import pytest

from tests.robustness.row import Outcome, Row, Run

SECONDS = 1800
REPORTED = 20


def full_disk(run: Run) -> Outcome:
    """Uploads to a service on a small file system, in a process that alone sees it."""
    disk = run.folder / "disk"
    disk.mkdir()
    apart = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are refused")
    module = [sys.executable, "-m", "tests.robustness.small_disk"]
    done = subprocess.run(
        [*apart, *module, str(run.count), str(run.seed), str(disk)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        return Outcome(False, detail=done.stderr[-4000:])
    result = json.loads(done.stdout.splitlines()[-1])
    abandoned = result["tally"].pop("abandoned", 0)
    counts = {f"status {status}": count for status, count in sorted(result["tally"].items())}
    counts |= {
        "abandoned": abandoned,
        "refused": sum(result["tally"].get(status, 0) for status in ("503", "507")),
    }
    wrong = result["wrong"]
    return Outcome(not wrong, counts | {"wrong": len(wrong)}, "\n".join(wrong[:REPORTED]))


ROWS = (
    Row(
        "full-disk",
        "an upload to a disk that is full or fails ends as 507 or 503, shows no partial blob, "
        "leaves no file but an upload that can be resumed, which a collection on the full disk "
        "removes once it is abandoned, and succeeds once there is room",
        100,
        full_disk,
        "The full disk is a tmpfs; failures of fsync, rename, utime and mkdir are injected in "
        "Python, not by a device.",
        fewest=30,
        minimums={"refused": 0.2, "abandoned": 0.02},
    ),
)
