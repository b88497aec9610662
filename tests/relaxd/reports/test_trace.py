"""Traces hold to the trace event format of Chrome, as Perfetto reads it."""

import itertools
import json
from typing import Any

import pytest

from relaxd.contract.bundle.profile import KernelCall, KernelTime, KernelTimes, Machine, Profile
from relaxd.contract.bundle.report import Report, TargetReport
from relaxd.errors import BundleError
from relaxd.reports.trace import trace

ROWS = (
    KernelTime(
        "up", 2, 0.3, 0.75, flops=4000, bytes=100, family="matmul", tile="6x16", nodes=("a", "<b>")
    ),
    KernelTime("vm.builtin.alloc", 1, 0.1, 0.25),
)
CALLS = (
    KernelCall("vm.builtin.alloc", 0.0, 100.0),
    KernelCall("up", 100.5, 150.0),
    KernelCall("up", 251.0, 150.0),
    KernelCall("small", 401.0, 0.2),
)


def report(times: KernelTimes | None) -> Report:
    profile = Profile(True, machine=Machine(processor="A Processor"), operators=times)
    return Report("net", TargetReport("native"), digest="sha256:1", profiles=(profile,))


def document() -> Any:
    """Read it as a viewer does: strictly, without NaN."""
    created = trace(report(KernelTimes("opt", {"n": 4}, ROWS, CALLS)))
    return json.loads(json.dumps(created, allow_nan=False))


def test_every_event_has_what_the_format_asks_of_its_phase() -> None:
    result = document()
    assert result["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in result["otherData"].values())
    for event in result["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        assert event["ph"] in ("X", "M")
        if event["ph"] == "X":
            assert isinstance(event["cat"], str)
            assert event["cat"]
            assert event["ts"] >= 0
            assert event["dur"] >= 0
        else:
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)


def test_calls_come_in_order_and_one_ends_before_the_next_begins() -> None:
    events = [event for event in document()["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in events] == [call.name for call in CALLS]
    for before, after in itertools.pairwise(events):
        assert before["ts"] + before["dur"] <= after["ts"]


def test_a_kernel_tells_its_family_nodes_and_the_work_of_a_call() -> None:
    (named, _, machine, up, *_, small) = document()["traceEvents"]
    assert named["args"]["name"] == "net for native at n=4"
    assert (machine["cat"], small["cat"]) == ("machine", "kernel")
    assert up["cat"] == "matmul"
    assert up["args"] == {
        "family": "matmul",
        "tile": "6x16",
        "flops": 2000,
        "bytes": 50,
        "nodes": ["a", "<b>"],
    }


@pytest.mark.parametrize("times", [None, KernelTimes("opt", {}, ROWS)])
def test_a_report_without_a_timeline_is_refused(times: KernelTimes | None) -> None:
    with pytest.raises(BundleError, match="no profile that tells when"):
        trace(report(times))
