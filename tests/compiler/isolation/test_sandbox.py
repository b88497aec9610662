"""The child's side, in processes of its own: what is given up cannot be had back."""

import errno
import os
import subprocess
import sys

import pytest

from compiler.isolation import sandbox


def confined(script: str, parent: int | None = None) -> str:
    code = (
        "import os, socket\nfrom compiler.isolation import sandbox\nremarks = "
        f"sandbox.confine({os.getpid() if parent is None else parent})\n{script}"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_no_new_privileges_and_no_core_dumps() -> None:
    status = confined("print(open('/proc/self/status').read())")
    assert "NoNewPrivs:\t1" in status
    assert confined("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))") == "(0, 0)"


def test_it_goes_first_when_memory_runs_out() -> None:
    assert confined("print(open('/proc/self/oom_score_adj').read())") == "1000"


def test_the_network_is_cut_or_the_log_says_that_it_is_not() -> None:
    script = """
try:
    socket.create_connection(("203.0.113.1", 80), timeout=5)
except OSError as error:
    print(error.errno, remarks)
"""
    said = confined(script)
    assert said.startswith(f"{errno.ENETUNREACH} ") or "the network is not cut off" in said


def test_files_stay_readable_and_writable(tmp_path: object) -> None:
    path = f"{tmp_path}/file"
    assert (
        confined(f"open({path!r}, 'w').write('x'); print(open({path!r}).read(), os.getuid())")
        == f"x {os.getuid()}"
    )


def test_an_orphan_does_not_start() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        confined("", parent=1 if os.getpid() != 1 else 2)
    assert sandbox.ParentDied.__name__ in caught.value.stderr
