import subprocess
import sys

from service.workers.scratch import Workshop

KILLED = """
import os, signal, sys
from pathlib import Path
from service.workers.scratch import Workshop
workshop = Workshop(Path(sys.argv[1]), "killed")
with workshop.bench() as bench:
    (bench / "model").write_text("left behind")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_bench_is_empty_and_goes_with_the_build(tmp_path):
    workshop = Workshop(tmp_path, "worker")
    with workshop.bench() as bench:
        assert list(bench.iterdir()) == []
        (bench / "model").write_text("x")
    assert not bench.exists()
    workshop.close()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_killed_workers_files_go_when_the_next_worker_starts_and_a_live_ones_stay(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert list(tmp_path.glob("killed/*/*/model"))
    live = Workshop(tmp_path, "live")
    assert not list(tmp_path.glob("killed*"))
    with live.bench() as bench:
        other = Workshop(tmp_path, "other")
        assert bench.exists()
        other.close()
    live.close()
