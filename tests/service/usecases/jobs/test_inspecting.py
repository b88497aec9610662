import threading

import pytest
from prometheus_client import CollectorRegistry

from compiler.errors import LoadError
from relaxd.contract.request import CompileRequest
from service.errors import InspectionFailed, NotFinished, UnknownModel
from service.usecases.builds import fleet, scheduling
from service.workers.worker import Worker


def inspect(jobs, model, request, seconds):
    job = jobs.wait(jobs.inspect(model, request).id, seconds)
    return jobs.report(job, seconds)


@pytest.fixture
def worker(doorbell, answer):
    """Somebody who answers every ring at once, from another thread as a worker would."""

    def ring(build_id, target):
        thread = threading.Thread(target=answer, args=(build_id,))
        thread.start()
        thread.join()

    doorbell.ring = ring


@pytest.mark.usefixtures("worker")
def test_a_report_is_made_once(jobs, model, compiler):
    report = inspect(jobs, model, CompileRequest(), 5)
    assert report == {"inputs": [], "model_bytes": 7}
    assert inspect(jobs, model, CompileRequest(), 5) == report
    assert len(compiler.jobs) == 1
    assert jobs.list() == [], "inspections are not among the jobs"


@pytest.mark.usefixtures("worker")
def test_a_model_that_cannot_be_read_is_told_apart(jobs, model, compiler):
    def fail(cancelled):
        raise LoadError("not a protobuf", reason="not_onnx", hint="export it again")

    compiler.behaviour = fail
    with pytest.raises(InspectionFailed) as failed:
        inspect(jobs, model, CompileRequest(), 5)
    assert (failed.value.code, failed.value.hint) == ("load.not_onnx", "export it again")


def test_without_a_worker_the_wait_ends_and_says_why(jobs, model):
    with pytest.raises(NotFinished) as late:
        inspect(jobs, model, CompileRequest(), 0)
    assert "no worker is running" in late.value.hint


def test_every_worker_serves_it_whatever_it_compiles_for(core, jobs, model):
    worker = Worker(core, slots=1, registry=CollectorRegistry())
    fleet.announce(core, worker.name, "host", worker.capabilities, 1)
    with pytest.raises(NotFinished) as late:
        inspect(jobs, model, CompileRequest(targets=("x86-64-v4",)), 0)
    assert late.value.hint == "send the request again: it finds the same inspection"
    assert scheduling.next_build(core, ["inspect"])
    assert scheduling.next_build(core, ["native", "x86-64-v4"]) is None
    worker.close()


def test_an_unknown_model_is_refused(jobs):
    with pytest.raises(UnknownModel):
        inspect(jobs, "sha256:" + "0" * 64, CompileRequest(), 0)
