import os

import pytest

from relaxd.errors import DeclarationError
from relaxd.loader.engines import threads
from relaxd.loader.engines.helpers import Helpers
from relaxd.loader.engines.threads import core_groups, team_for, wanted_threads

SMT = ((0, 4), (1, 5), (2, 6), (3, 7))

RUN = """
def tasks():
    found = {}
    for task in os.listdir("/proc/self/task"):
        lines = open(f"/proc/self/task/{task}/status").read().splitlines()
        status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
        found[status["Name"]] = found.get(status["Name"], []) + [status["Cpus_allowed_list"]]
    return found

def workers():
    helpers = [found for name, found in tasks().items() if name == "relaxd helper"]
    return sorted(cpus for found in helpers for cpus in found)

def load(threads=None):
    return relaxd.load(sys.argv[1], threads=threads)

def infer(model):
    y = model(x=np.full((32, 64), 3, "float32"), work=np.array(1))["y"]
    assert (y == 3 * 4096 * 1.5).all(), y
    return True
"""


@pytest.mark.parametrize(
    ("threads", "groups"),
    [
        (1, [{0, 1, 2, 3, 4, 5, 6, 7}]),
        (2, [{0, 4, 2, 6}, {1, 5, 3, 7}]),
        (3, [{0, 4, 3, 7}, {1, 5}, {2, 6}]),
        (4, [{0, 4}, {1, 5}, {2, 6}, {3, 7}]),
        (6, [{0}, {1}, {2}, {3}, {4}, {5}]),
        (9, [{0, 1, 2, 3, 4, 5, 6, 7}] * 9),
    ],
)
def test_workers_share_no_core_while_there_are_cores(threads, groups):
    assert core_groups(threads, SMT) == tuple(map(frozenset, groups))


def test_uneven_cores():
    assert core_groups(3, ((0, 2), (1,))) == ({0}, {1}, {2})


def test_wanted_threads(monkeypatch):
    monkeypatch.delenv("RELAXD_NUM_THREADS", raising=False)
    assert wanted_threads(None) is None
    assert wanted_threads(3) == 3
    monkeypatch.setenv("RELAXD_NUM_THREADS", "7")
    assert wanted_threads(None) == 7
    assert wanted_threads(3) == 3


def test_a_team_of_one_has_every_cpu_and_does_not_ask_for_cores(monkeypatch):
    asked = []
    monkeypatch.setattr(threads, "usable_cores", lambda: asked.append(1) or SMT)
    for team in (team_for(1), team_for(4, None)):
        assert team.groups == (frozenset(os.sched_getaffinity(0)),)
    assert not asked
    assert team_for(2).size == 2
    assert asked


def test_by_default_there_is_a_thread_a_core(monkeypatch):
    monkeypatch.delenv("RELAXD_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "usable_cores", lambda: SMT)
    monkeypatch.setattr(threads, "cpu_quota", lambda: 3.5)
    assert team_for(None).size == 3


@pytest.mark.parametrize(
    ("requested", "variable", "field"),
    [(0, "", "threads"), (None, "0", "RELAXD_NUM_THREADS"), (None, "many", "RELAXD_NUM_THREADS")],
)
def test_a_bad_count(monkeypatch, requested, variable, field):
    monkeypatch.setenv("RELAXD_NUM_THREADS", variable)
    with pytest.raises(DeclarationError) as caught:
        wanted_threads(requested)
    assert caught.value.field == field


SAMPLE_NS, QUARTER = threads._LOOK_NS, threads._LOOK_NS // 4


def moves(positions, monkeypatch):
    """The helpers that are confined from here on, with their CPUs."""
    created = []
    monkeypatch.setattr(threads, "_bind", lambda thread, cpus: created.append((thread, set(cpus))))
    return created


class FewLoops(Helpers):
    """Stands for the library of helpers: `shares` says whether a call has loops."""

    def __init__(self):
        self.shares = False

    def start(self, count, patience):
        return 1, [71]

    def lead(self, team):
        assert team == 1

    def leave(self):
        return self.shares


def test_a_caller_without_loops_is_confined_once(monkeypatch):
    helpers, own = FewLoops(), os.sched_getaffinity(0)
    team = threads.Team((frozenset({0}), frozenset({1})), lambda: helpers)
    created = moves(team, monkeypatch)

    def confined(kind=None):
        del created[:]
        assert team.call(lambda x: x + 1, [2], kind=kind) == 3
        return created == [(0, {0}), (0, own)]

    small, large = {"n": 1}, {"n": 1}
    assert team.call(lambda x: x + 1, [2], kind=small) == 3
    assert created == [(71, {1}), (0, {0}), (0, own)]
    assert not confined(small)
    assert confined(large)
    assert confined()
    assert confined(small)
    # Loops that nobody expected: the next call is confined again.
    helpers.shares = True
    assert not confined(small)
    assert confined(small)
    assert confined(small)


def test_a_caller_whose_core_is_busy_changes_positions_with_a_helper(monkeypatch):
    positions = threads.CoreGroups(core_groups(4, SMT))
    created = moves(positions, monkeypatch)
    positions.begin([71, 72, 73])
    assert created == [(71, {1, 5}), (72, {2, 6}), (73, {3, 7})]
    for _ in range(3):
        positions.observe(QUARTER, QUARTER // 2)
        assert positions.caller == {0, 4}
    positions.observe(QUARTER, QUARTER // 2)
    assert (positions.caller, created[3:]) == ({1, 5}, [(71, {0, 4})])
    # No better: the next helper's place, after two looks, then the last one's after four.
    for looks, caller, move in ((2, {2, 6}, (72, {1, 5})), (4, {3, 7}, (73, {2, 6}))):
        for _ in range(looks):
            before = len(created)
            positions.observe(SAMPLE_NS, SAMPLE_NS // 2)
        assert (positions.caller, created[before:]) == (caller, [move])


def test_a_caller_that_has_its_core_stays(monkeypatch):
    positions = threads.CoreGroups(core_groups(2, SMT))
    created = moves(positions, monkeypatch)
    positions.begin([71])
    for own in (SAMPLE_NS, SAMPLE_NS * 9 // 10):
        for _ in range(200):
            positions.observe(SAMPLE_NS, own)
    assert (positions.caller, created) == ({0, 4, 2, 6}, [(71, {1, 5, 3, 7})])


def test_where_all_cores_are_busy_moves_become_rare(monkeypatch):
    positions = threads.CoreGroups(core_groups(2, SMT))
    created = moves(positions, monkeypatch)
    positions.begin([71])
    for _ in range(10 * threads._LONGEST_STAY):
        positions.observe(SAMPLE_NS, SAMPLE_NS // 2)
    assert len(created) == 1 + 7 + 8


def test_the_team_has_a_core_each_and_the_caller_gets_its_affinity_back(python, bundles):
    """The helper is on the second core only, the caller on the first while it calls."""
    code = """
before = os.sched_getaffinity(0)
cpus = sorted(before)[:2]
os.sched_setaffinity(0, cpus)
model = load(threads=2)
started = workers()
infer(model)
seen = []
function = model._engine.machines
def affinity():
    return sorted(os.sched_getaffinity(0))
model._engine.machines = lambda *tensors: (seen.append(affinity()), function(*tensors))[1]
infer(model)
print(json.dumps({"cpus": cpus, "started": started, "workers": workers(), "during": seen,
                  "after": sorted(os.sched_getaffinity(0))}))
"""
    report = python(RUN + code, bundles / "vector")
    cpus = report["cpus"]
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    assert report == {
        "cpus": cpus,
        "started": [],
        "workers": [str(cpus[1])],
        "during": [[cpus[0]]],
        "after": cpus,
    }


def test_the_default_stays_within_the_affinity_of_the_process(python, bundles):
    code = """
os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
model = load()
print(json.dumps({"ran": infer(model), "threads": model.threads, "workers": workers(),
                  "after": len(os.sched_getaffinity(0))}))
"""
    assert python(RUN + code, bundles / "vector") == {
        "ran": True,
        "threads": 1,
        "workers": [],
        "after": 1,
    }


def test_the_environment_and_the_argument_set_the_count(python, bundles):
    code = """
models = [load(), load(threads=1), load(threads=4)]
print(json.dumps([[model.threads for model in models], all(map(infer, models))]))
"""
    assert python(RUN + code, bundles / "vector", RELAXD_NUM_THREADS="3") == [[3, 1, 4], True]


def test_all_callers_share_one_team(python, bundles):
    code = """
model = load(threads=3)
infer(model)
first = len(workers())
callers = [threading.Thread(target=infer, args=(model,)) for _ in range(5)]
for caller in callers: caller.start()
for caller in callers: caller.join()
print(json.dumps({"first": first, "all": len(workers()), "again": infer(load(threads=3))}))
"""
    assert python(RUN + code, bundles / "vector") == {"first": 2, "all": 2, "again": True}


def test_models_compute_without_a_pool_of_tvm(python, bundles):
    """Whatever threads there are beside the main one are helpers, and numpy's."""
    code = """
before = sum(map(len, tasks().values()))
infer(load(threads=1))
alone = sum(map(len, tasks().values())) - before
infer(load(threads=4))
print(json.dumps([alone, sum(map(len, tasks().values())) - before, len(workers())]))
"""
    assert python(RUN + code, bundles / "vector") == [0, 3, 3]


def test_a_helper_that_never_runs_holds_nobody_up(python, bundles):
    """Its core taken from it for good, by a policy that runs only where nobody else wants to, the
    caller does its tasks.
    """
    code = """
cpu = max(os.sched_getaffinity(0))
model = load(threads=4)
infer(model)
busy = os.fork()
if busy == 0:
    os.sched_setaffinity(0, {cpu})
    while True: pass
for task in os.listdir("/proc/self/task"):
    if open(f"/proc/self/task/{task}/comm").read().strip() == "relaxd helper":
        os.sched_setaffinity(int(task), {cpu})
        os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
ran = [infer(model) for _ in range(2000)]
os.kill(busy, 9)
print(json.dumps([all(ran), os.waitpid(busy, 0)[1]]))
"""
    assert python(RUN + code, bundles / "vector") == [True, 9]


def test_a_forked_child_computes(python, bundles):
    code = """
model = load(threads=2)
infer(model)
child = os.fork()
if child == 0:
    os._exit(0 if infer(model) and infer(load(threads=1)) else 1)
print(json.dumps({"child": os.waitpid(child, 0)[1], "parent": infer(model)}))
"""
    assert python(RUN + code, bundles / "vector") == {"child": 0, "parent": True}


def test_a_child_forked_before_the_first_call_exits_too(python, bundles):
    code = """
model = load(threads=2)
child = os.fork()
infer(model)
if child == 0:
    sys.exit(0)
print(json.dumps({"child": os.waitpid(child, 0)[1]}))
"""
    assert python(RUN + code, bundles / "vector") == {"child": 0}


def test_an_error_on_either_thread_leaves_the_team_working(python, bundles):
    code = """
import relaxd.errors
model = load(threads=2)
infer(model)
function, caught = model._engine.machines, []

def fail(*tensors):
    raise ValueError("boom")

def attempt():
    try:
        infer(model)
    except relaxd.errors.ExecutionError as error:
        caught.append(error.message)

model._engine.machines = fail
attempt()
other = threading.Thread(target=attempt)
other.start(); other.join()
model._engine.machines = function
print(json.dumps({"caught": caught, "next": infer(model)}))
"""
    assert python(RUN + code, bundles / "vector") == {
        "caught": ["vector failed: boom"] * 2,
        "next": True,
    }
