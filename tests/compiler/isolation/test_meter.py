"""Usage of processes is counted for the stage in which they used it."""

import subprocess
import sys
import time

import psutil
import pytest

from compiler.isolation.meter import Meter
from relaxd.contract.states import Stage

BUSY = """
import subprocess, sys, time
block = bytearray(64 << 20)
def spin(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
spin(0.4)
print("one", flush=True); sys.stdin.readline()
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
print("two", flush=True); sys.stdin.readline()
"""
CHILD = "import time\nwhile time.process_time() < 0.5: pass"


def test_processor_time_and_memory_are_those_of_the_stage() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        meter, family = Meter(), [psutil.Process(process.pid)]
        process.stdout.readline()
        assert meter.sample(family, Stage.IMPORT) > 64 << 20
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        meter.sample(family, Stage.PASS)
        process.stdin.write(b"\n")
    imported, passed = meter.stages()
    assert (imported.stage, passed.stage) == (Stage.IMPORT, Stage.PASS)
    assert imported.cpu_seconds > 0.35
    assert passed.cpu_seconds > 0.45, "a child that has ended counts"
    assert passed.seconds > 0
    assert passed.memory_byte_seconds > (64 << 20) * passed.seconds


def test_processes_that_are_gone_take_nothing_back() -> None:
    meter = Meter()
    meter.sample([psutil.Process()], Stage.LOAD)
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    meter.sample([psutil.Process()], Stage.LOAD)
    before = meter.stages()[0].cpu_seconds
    meter.sample([], Stage.LOAD)
    meter.sample([psutil.Process()], Stage.LOAD)
    assert 0 <= meter.stages()[0].cpu_seconds - before < 1


def test_what_samples_missed_counts_for_the_last_stage() -> None:
    meter = Meter()
    meter.sample([psutil.Process()], Stage.LOAD)
    counted = meter.stages()[0].cpu_seconds
    meter.settle(counted + 2.0, Stage.PASS)
    meter.settle(counted + 2.0, Stage.PASS)
    meter.settle(counted / 2, Stage.CODEGEN)
    meter.settle(None, Stage.CODEGEN)
    assert [stage.stage for stage in meter.stages()] == [Stage.LOAD, Stage.PASS]
    assert meter.stages()[1].cpu_seconds == pytest.approx(2.0)


FORKED = """
import os, sys
block = bytearray(b"1" * (128 << 20))
if os.fork() == 0:
    sys.stdin.readline()
    os._exit(0)
print("forked", flush=True); sys.stdin.readline(); os.wait()
"""


def test_pages_that_a_fork_shares_count_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        root = psutil.Process(process.pid)
        family, meter = [root, *root.children()], Meter()
        assert len(family) == 2
        assert meter.sample(family, Stage.LOAD) > 256 << 20
        assert 128 << 20 < meter.count_shared_once(family) < 192 << 20
        process.stdin.write(b"\n\n")
        process.stdin.close()
