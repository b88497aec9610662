from sqlalchemy import update

from relaxd.contract.request import CompileRequest
from service.db.schema import workers
from service.usecases.builds import fleet, scheduling


def workers_of(jobs, name):
    (result,) = [target["workers"] for target in jobs.targets() if target["name"] == name]
    return result


def test_targets_list_the_live_workers_that_compile_them(core, jobs, clock):
    fleet.announce(core, "a", "host", ["native", "x86-64-v3"], 2)
    fleet.announce(core, "b", "host", ["native"], 1)
    assert (
        workers_of(jobs, "native"),
        workers_of(jobs, "x86-64-v3"),
        workers_of(jobs, "x86-64-v4"),
    ) == (["a", "b"], ["a"], [])
    clock.advance(core.settings.lease_s - 1)
    fleet.announce(core, "a", "host", ["native"], 2)
    clock.advance(2)
    assert (workers_of(jobs, "native"), workers_of(jobs, "x86-64-v3")) == (["a"], [])
    fleet.depart(core, "a")
    assert workers_of(jobs, "native") == []


def test_a_queued_build_says_why_it_does_not_run(core, jobs, model):
    job = jobs.submit(model, CompileRequest(targets=("x86-64-v4",)))
    assert "no worker is running" in jobs.get(job.id).builds[0].note
    fleet.announce(core, "a", "host", ["native"], 1)
    assert (
        jobs.get(job.id).builds[0].note
        == "no running worker compiles for x86-64-v4; the running ones compile for native"
    )
    assert jobs.list()[0].builds[0].note
    fleet.announce(core, "b", "host", ["x86-64-v4"], 1)
    assert jobs.get(job.id).builds[0].note is None


RAW = '{"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu", "mattr": ["+neon"]}'


def test_targets_say_who_verifies_and_what_nobody_compiles(core, jobs):
    fleet.announce(
        core, "a", "host", ["native", "aarch64"], 2, {"native": "executed", "aarch64": "emulated"}
    )
    listed = {target["name"]: target for target in jobs.targets()}
    assert (listed["aarch64"]["verified_by"], listed["aarch64"]["note"]) == (
        {"a": "emulated"},
        None,
    )
    assert "no running worker compiles for riscv64" in listed["riscv64"]["note"]
    assert listed["aarch64"]["load"]["arch"] == "aarch64"
    assert listed["aarch64"]["flavours"] == ["standalone", "vm"]
    assert listed["opencl"]["flavours"] == ["vm"]


def test_targets_say_how_well_each_worker_confines_a_build(core, jobs):
    fleet.announce(core, "a", "host", ["native"], 2, {}, "filesystem")
    fleet.announce(core, "b", "host", ["native", "aarch64"], 2)
    listed = {target["name"]: target["sandboxes"] for target in jobs.targets()}
    assert listed["native"] == {"a": "filesystem", "b": "none"}
    assert listed["aarch64"] == {"b": "none"}
    assert listed["riscv64"] == {}


def test_a_worker_of_an_earlier_release_is_taken_to_confine_nothing(core, jobs):
    fleet.announce(core, "a", "host", ["native"], 2, {}, "full")
    with core.writing() as tx:
        offers = {"compiles": ["native"], "verifies": {}}
        tx.connection.execute(update(workers).values(capabilities=offers))
    listed = {target["name"]: target["sandboxes"] for target in jobs.targets()}
    assert listed["native"] == {"a": "none"}


def test_a_described_target_waits_for_a_worker_of_its_kind(core, jobs, model):
    job = jobs.submit(model, CompileRequest(targets=(RAW,)))
    fleet.announce(core, "a", "host", ["native"], 1)
    assert "no running worker compiles for" in jobs.get(job.id).builds[0].note
    assert scheduling.next_build(core, ["native"]) is None
    fleet.announce(core, "b", "host", ["raw-llvm"], 1)
    assert jobs.get(job.id).builds[0].note is None
    assert scheduling.next_build(core, ["raw-llvm"]) == job.builds[0].id
