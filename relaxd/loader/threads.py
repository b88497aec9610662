"""Teams of threads that run compiled code: how many, on which cores, and from which thread they are led.

TVM keeps one thread pool for each native thread that calls it; the caller is worker 0 of its pool, and the pool's other
workers spin for a while after every call. Left alone, the pool is sized for two hyper-threads a core, binds its workers to
CPUs 0, 1, 2... whatever the process may use, lets the caller run on a worker's core (half speed), widens the
caller's affinity for good, and grows a second pool, which fights with the first, when a second thread calls. So here:

- a team of n has n disjoint groups of physical cores, together all that the process may use; worker i stays in group i;
- the caller is worker 0: confined to group 0 during the call, it gets its own affinity back afterwards;
- the first thread that calls is the team's leader; for any other thread that calls, one thread of the team's own leads;
- a thread leads one size of team for life, since TVM cannot resize its pool; calls of one team are one at a time.

Fork before the first call, not after: a forked child computes correctly, but the leader's pool makes it hang when it exits.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

from relaxd.errors import DeclarationError
from relaxd.loader.topology import Cores, cpu_quota, default_threads, usable_cores

VARIABLE = "RELAXD_NUM_THREADS"
_SPINS = "TVM_THREAD_POOL_SPIN_COUNT"
_DEFAULT_SPINS = "10000"
"""Some milliseconds. TVM's 300,000 keep every core busy for 0.2 s after each call, out of the caller's CPU quota."""
_ONE_CORE_PER_THREAD = -2

Groups = tuple[frozenset[int], ...]


def thread_count(requested: int | None, cores: Cores) -> int:
    """`requested`, else RELAXD_NUM_THREADS, else one a core within the cgroup's quota; raises DeclarationError below 1."""
    text = os.environ.get(VARIABLE, "").strip()
    field = "threads"
    if requested is None and text:
        field = VARIABLE
        requested = int(text) if text.isdecimal() else 0
    if requested is None:
        return default_threads(cores, cpu_quota())
    if requested < 1:
        raise DeclarationError(f"{field} must be an integer of at least 1", field=field, hint="leave it unset for one thread a core")
    return requested


def core_groups(threads: int, cores: Cores) -> Groups:
    """CPUs for each worker: disjoint as long as there are CPUs enough, whole cores as long as there are cores enough."""
    if threads <= len(cores):
        return tuple(frozenset(cpu for core in cores[i::threads] for cpu in core) for i in range(threads))
    cpus = [core[i] for i in range(max(map(len, cores))) for core in cores if i < len(core)]
    if threads <= len(cpus):
        return tuple(frozenset({cpu}) for cpu in cpus[:threads])
    return (frozenset(cpus),) * threads


class Team:
    """Threads for compiled code, worker i on the CPUs `groups[i]`."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """A forked child has neither the threads nor, perhaps, a lock that anyone will ever release."""
        self._lock = threading.Lock()
        self._led = False
        self._process = os.getpid()
        self._own_thread: ThreadPoolExecutor | None = None

    @property
    def size(self) -> int:
        """The number of threads."""
        return len(self.groups)

    def call(self, function: Callable[..., Any], arguments: Iterable[Any]) -> Any:
        """`function(*arguments)`, with its parallel regions run by this team; what it raises is raised here."""
        if self._led_by_this_thread():
            return self._run(function, arguments)
        with self._lock:
            if self._own_thread is None:
                self._own_thread = ThreadPoolExecutor(1, "relaxd-leader", initializer=self._enlist)
        return self._own_thread.submit(self._run, function, arguments).result()

    def _led_by_this_thread(self) -> bool:
        role = getattr(_thread, "role", None)
        if role is None and (self.size == 1 or self._claim()):
            return self._enlist()
        return role == self._role

    @property
    def _role(self) -> tuple[Groups, int]:
        """A team of one has no threads of its own, so any thread may lead it, and forking does it no harm."""
        return (self.groups, self._process) if self.size > 1 else ((), 0)

    def _claim(self) -> bool:
        with self._lock:
            first, self._led = not self._led, True
        return first

    def _enlist(self) -> bool:
        """Make this thread a leader; False where TVM gave it a pool of another size before (by a direct use of tvm)."""
        os.environ.setdefault(_SPINS, _DEFAULT_SPINS)
        before = os.sched_getaffinity(0)
        _bind(0, frozenset().union(*self.groups))
        workers = _threads_started_by(lambda: _configure_pool([min(group) for group in self.groups]))
        for worker, group in zip(workers, self.groups[self.size - len(workers) :], strict=True):
            _bind(worker, group)
        _bind(0, before)
        ready = bool(tvm_ffi.get_global_func("runtime.NumThreads")() == self.size)
        _thread.role = self._role if ready else ("foreign pool", 0)
        return ready

    def _run(self, function: Callable[..., Any], arguments: Iterable[Any]) -> Any:
        with self._lock:
            if self.size == 1:
                return function(*arguments)
            before = os.sched_getaffinity(0)
            _bind(0, self.groups[0])
            try:
                return function(*arguments)
            finally:
                _bind(0, before)


_thread = threading.local()
"""`role`: which team's leader the thread is, in which process."""


@cache
def _shared_team(groups: Groups) -> Team:
    return Team(groups)


def team_for(threads: int | None) -> Team:
    """The process's team of so many threads (see `thread_count`); teams of one are not shared, so that they run side by side."""
    cores = usable_cores()
    groups = core_groups(thread_count(threads, cores), cores)
    return Team(groups) if len(groups) == 1 else _shared_team(groups)


def _configure_pool(cpus: list[int]) -> None:
    tvm_ffi.get_global_func("runtime.config_threadpool")(_ONE_CORE_PER_THREAD, len(cpus), [str(cpu) for cpu in cpus])


def _threads_started_by(action: Callable[[], None]) -> list[int]:
    """Ids of the threads that the action starts, in order; they inherit this thread's name, which is unique meanwhile."""
    own = Path("/proc/thread-self/comm")
    before, unique = own.read_text(), f"relaxd {threading.get_native_id()}"
    own.write_text(unique)
    try:
        action()
        named = [int(task.parent.name) for task in Path("/proc/self/task").glob("*/comm") if _reads(task, unique)]
    finally:
        own.write_text(before.strip())
    return sorted(set(named) - {threading.get_native_id()})


def _reads(comm: Path, name: str) -> bool:
    try:
        return comm.read_text().strip() == name
    except (FileNotFoundError, ProcessLookupError):
        return False


def _bind(thread: int, cpus: Iterable[int]) -> None:
    """Best effort: a CPU set that shrank since the team was made must not keep a model from running."""
    with suppress(OSError):
        os.sched_setaffinity(thread, cpus)
