"""A fork comes between calls: children compute, or say at once that they cannot."""

import threading

import pytest

from relaxd.errors import ExecutionError
from relaxd.loader.forking import Gate

pytestmark = pytest.mark.slow

FORKS = """
import signal
model = relaxd.load(sys.argv[1], threads=int(sys.argv[2]))
x = np.full((32, 64), 3, "float32")

def infer():
    y = model(x=x, work=np.array(1))["y"]
    assert (y == 3 * 4096 * 1.5).all(), y

ended = threading.Event()
failures = []
def client():
    try:
        while not ended.is_set():
            infer()
    except BaseException as error:
        failures.append(repr(error))
clients = [threading.Thread(target=client) for _ in range(2)]
for thread in clients:
    thread.start()
statuses = {}
for _ in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            infer(), infer()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    statuses[status] = statuses.get(status, 0) + 1
ended.set()
for thread in clients:
    thread.join()
print(json.dumps({"statuses": statuses, "failures": failures}))
"""


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize(
    ("threads", "forks"), [pytest.param(1, 150, marks=pytest.mark.long), (2, 25)]
)
def test_forks_during_calls(python, bundles, threads, forks, part):
    seen = python(FORKS, bundles / "vector", threads, forks)
    assert seen == {"statuses": {"0": forks}, "failures": []}


def test_a_fork_from_within_a_call_is_refused_in_the_child_at_once(python, bundles):
    code = """
import signal
model = relaxd.load(sys.argv[1], threads=1)
function, codes = model._engine.machines, []
def forking(*tensors):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            model(x=np.full((32, 64), 3, "float32"), work=np.array(1))
        except relaxd.errors.ExecutionError as error:
            os._exit(7 if "forked while a model ran" in str(error) else 8)
        finally:
            os._exit(9)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return function(*tensors)
model._engine.machines = forking
y = model(x=np.full((32, 64), 3, "float32"), work=np.array(1))["y"]
print(json.dumps([codes, bool((y == 3 * 4096 * 1.5).all())]))
"""
    assert python("import relaxd.errors\n" + code, bundles / "vector") == [[7], True]


def test_calls_wait_for_a_fork_and_a_fork_for_calls():
    gate, order = Gate(), []
    gate._before()

    def call():
        with gate:
            order.append("called")

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(0.2)
    assert order == []
    gate._after()
    thread.join(10)
    assert order == ["called"]


def test_a_fork_that_waited_in_vain_cuts_the_call_short(monkeypatch):
    monkeypatch.setattr("relaxd.loader.forking.PATIENCE_S", 0.05)
    gate, elsewhere = Gate(), -1
    gate._inside[elsewhere] = 1  # a thread that computes for longer than that
    gate._before()
    gate._in_child()
    with pytest.raises(ExecutionError, match="forked while a model ran"), gate:
        pass


def test_a_thread_that_was_about_to_wait_for_the_fork_cuts_nothing_short():
    gate, elsewhere = Gate(), -1
    gate._before()
    gate._inside[elsewhere] = 1  # it has not looked for the fork yet
    gate._in_child()
    with gate:
        assert gate._inside.keys() == {threading.get_ident()}


def test_a_model_of_a_device_does_not_outlive_a_fork(python, bundles):
    code = """
import dataclasses
import relaxd.errors
model = relaxd.load(sys.argv[1])
load = dataclasses.replace(model.manifest.load, device="cuda")
model.manifest = dataclasses.replace(model.manifest, load=load)
child = os.fork()
if child == 0:
    try:
        model(x=np.full((32, 64), 3, "float32"), work=np.array(1))
    except relaxd.errors.ExecutionError as error:
        os._exit(7 if "does not survive a fork" in str(error) else 8)
    finally:
        os._exit(9)
print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
    assert python(code, bundles / "vector") == 7
